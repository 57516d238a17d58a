/* A program of librpma 0.10: its five functions that later versions have no more, and every field of the
 * completion of each operation. */

#include <stddef.h>

#include "pair.h"

_Static_assert(RPMA_OP_READ == 0 && RPMA_OP_WRITE == 1 && RPMA_OP_FLUSH == 2, "numbers of 0.10");
_Static_assert(RPMA_OP_SEND == 3 && RPMA_OP_RECV == 4 && RPMA_OP_RECV_RDMA_WITH_IMM == 5, "numbers of 0.10");
_Static_assert(sizeof(struct rpma_completion) == 32, "the size of 0.10");
_Static_assert(offsetof(struct rpma_completion, op) == 8, "the layout of 0.10");
_Static_assert(offsetof(struct rpma_completion, byte_len) == 12, "the layout of 0.10");
_Static_assert(offsetof(struct rpma_completion, op_status) == 16, "the layout of 0.10");
_Static_assert(offsetof(struct rpma_completion, flags) == 20, "the layout of 0.10");
_Static_assert(offsetof(struct rpma_completion, imm) == 24, "the layout of 0.10");

static void check_fields(const struct rpma_completion *completion, const void *op_context, enum rpma_op op,
                         uint32_t byte_len, unsigned flags, uint32_t imm) {
    CHECK(completion->op_context == op_context);
    CHECK(completion->op_status == IBV_WC_SUCCESS);
    CHECK(completion->op == op);
    CHECK(completion->byte_len == byte_len);
    CHECK(completion->flags == flags);
    CHECK(completion->imm == imm);
}

/* Waits for the next completion of the main queue, through the connection. */
static void expect(struct rpma_conn *conn, const void *op_context, enum rpma_op op, uint32_t byte_len,
                   unsigned flags, uint32_t imm) {
    struct rpma_completion completion;
    memset(&completion, 0xee, sizeof(completion));
    OK(rpma_conn_completion_wait(conn));
    OK(rpma_conn_completion_get(conn, &completion));
    check_fields(&completion, op_context, op, byte_len, flags, imm);
    RETURNS(RPMA_E_NO_COMPLETION, rpma_conn_completion_get(conn, &completion));
}

/* The same through a queue. */
static void expect_from(struct rpma_cq *cq, const void *op_context, enum rpma_op op, uint32_t byte_len,
                        unsigned flags, uint32_t imm) {
    struct rpma_completion completion;
    memset(&completion, 0xee, sizeof(completion));
    OK(rpma_cq_wait(cq));
    OK(rpma_cq_get_completion(cq, &completion));
    check_fields(&completion, op_context, op, byte_len, flags, imm);
    RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_get_completion(cq, &completion));
}

static void test_accesses(struct pair *pair, struct memory *near, struct memory *far) {
    struct rpma_conn *conn = pair->client;
    strcpy(far->bytes, "of the peer");
    OK(rpma_read(conn, near->mr, 0, far->remote, 0, 12, ALWAYS, NUMBER(1)));
    expect(conn, NUMBER(1), RPMA_OP_READ, 12, 0, 0);
    CHECK(strcmp(near->bytes, "of the peer") == 0);

    strcpy(near->bytes, "for the peer");
    OK(rpma_write(conn, far->remote, 64, near->mr, 0, 13, ALWAYS, NUMBER(2)));
    expect(conn, NUMBER(2), RPMA_OP_WRITE, 13, 0, 0);
    CHECK(strcmp(far->bytes + 64, "for the peer") == 0);

    /* The library of 0.10 carried out a flush by a read, and reported that. */
    OK(rpma_write(conn, far->remote, 128, near->mr, 0, 13, ON_ERROR, NUMBER(3)));
    OK(rpma_flush(conn, far->remote, 128, 13, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NUMBER(4)));
    expect_from(pair->client_cq, NUMBER(4), RPMA_OP_READ, 13, 0, 0);
    CHECK(strcmp(far->bytes + 128, "for the peer") == 0);

    OK(rpma_write_atomic(conn, far->remote, 256, near->mr, 4, ALWAYS, NUMBER(5)));
    expect(conn, NUMBER(5), RPMA_OP_WRITE, RPMA_ATOMIC_WRITE_ALIGNMENT, 0, 0);
    CHECK(memcmp(far->bytes + 256, "the peer", 9) == 0);
    INVALID(rpma_write_atomic(conn, far->remote, 257, near->mr, 0, ALWAYS, NULL));
    INVALID(rpma_write_atomic(conn, far->remote, 256, near->mr, 0, 0, NULL));

    OK(rpma_recv(pair->server, NULL, 0, 0, NUMBER(6)));
    OK(rpma_write_with_imm(conn, far->remote, 512, near->mr, 0, 13, ALWAYS, IMM, NUMBER(7)));
    expect(pair->server, NUMBER(6), RPMA_OP_RECV_RDMA_WITH_IMM, 13, IBV_WC_WITH_IMM, IMM);
    expect(conn, NUMBER(7), RPMA_OP_WRITE, 13, 0, 0);
    CHECK(strcmp(far->bytes + 512, "for the peer") == 0);
}

static void test_messages(struct pair *pair, struct memory *near, struct memory *far) {
    strcpy(near->bytes, "hello");
    OK(rpma_recv(pair->server, far->mr, 1024, 100, NUMBER(1)));
    OK(rpma_send(pair->client, near->mr, 0, 6, ALWAYS, NUMBER(2)));
    expect(pair->server, NUMBER(1), RPMA_OP_RECV, 6, 0, 0);
    expect(pair->client, NUMBER(2), RPMA_OP_SEND, 6, 0, 0);
    CHECK(strcmp(far->bytes + 1024, "hello") == 0);

    OK(rpma_recv(pair->server, far->mr, 2048, 100, NUMBER(3)));
    OK(rpma_send_with_imm(pair->client, near->mr, 0, 6, ALWAYS, IMM, NUMBER(4)));
    expect_from(pair->server_cq, NUMBER(3), RPMA_OP_RECV, 6, IBV_WC_WITH_IMM, IMM);
    expect_from(pair->client_cq, NUMBER(4), RPMA_OP_SEND, 6, 0, 0);
    CHECK(strcmp(far->bytes + 2048, "hello") == 0);
}

static void test_descriptor(struct pair *pair, struct memory *near, struct memory *far) {
    struct rpma_completion completion;
    int fd = -1, of_queue = -2;
    OK(rpma_conn_get_completion_fd(pair->client, &fd));
    OK(rpma_cq_get_fd(pair->client_cq, &of_queue));
    CHECK(fd == of_queue);
    CHECK(!is_readable(fd));
    set_nonblocking(fd);
    RETURNS(RPMA_E_NO_COMPLETION, rpma_conn_completion_wait(pair->client));
    RETURNS(RPMA_E_NO_COMPLETION, rpma_conn_completion_get(pair->client, &completion));
    OK(rpma_read(pair->client, near->mr, 0, far->remote, 0, 8, ALWAYS, NUMBER(1)));
    wait_readable(fd);
    expect(pair->client, NUMBER(1), RPMA_OP_READ, 8, 0, 0);
    CHECK(!is_readable(fd));

    INVALID(rpma_conn_get_completion_fd(pair->client, NULL));
    INVALID(rpma_conn_completion_get(pair->client, NULL));
    INVALID(rpma_cq_get_completion(pair->client_cq, NULL));
}

int main(void) {
    struct pair pair;
    connect_pair(&pair, NULL);
    struct memory near = open_memory(pair.peer), far = open_memory(pair.peer);
    test_accesses(&pair, &near, &far);
    test_messages(&pair, &near, &far);
    test_descriptor(&pair, &near, &far);
    close_pair(&pair);
    close_memory(&near);
    close_memory(&far);
    return 0;
}
