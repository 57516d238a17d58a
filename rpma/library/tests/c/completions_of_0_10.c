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

/* Takes the next completion by a function of a connection or of a queue, and checks its fields. */
#define EXPECT_BY(wait, get, object, context, operation, length, expected_flags, expected_imm) \
    do {                                                                                       \
        struct rpma_completion completion;                                                     \
        memset(&completion, 0xee, sizeof(completion));                                         \
        OK(wait(object));                                                                      \
        OK(get(object, &completion));                                                          \
        CHECK(completion.op_context == (context));                                             \
        CHECK(completion.op_status == IBV_WC_SUCCESS);                                         \
        CHECK(completion.op == (operation));                                                   \
        CHECK(completion.byte_len == (length));                                                \
        CHECK(completion.flags == (expected_flags));                                           \
        CHECK(completion.imm == (expected_imm));                                               \
        RETURNS(RPMA_E_NO_COMPLETION, get(object, &completion));                               \
    } while (0)

/* Waits for the next completion of the main queue, through the connection. */
#define EXPECT(conn, ...) EXPECT_BY(rpma_conn_completion_wait, rpma_conn_completion_get, conn, __VA_ARGS__)
/* The same through a queue. */
#define EXPECT_FROM(cq, ...) EXPECT_BY(rpma_cq_wait, rpma_cq_get_completion, cq, __VA_ARGS__)

static void test_accesses(struct pair *pair) {
    struct rpma_conn *conn = pair->client;
    strcpy(pair->far.bytes, "of the peer");
    OK(rpma_read(conn, pair->near.mr, 0, pair->far.remote, 0, 12, ALWAYS, NUMBER(1)));
    EXPECT(conn, NUMBER(1), RPMA_OP_READ, 12, 0, 0);
    CHECK(strcmp(pair->near.bytes, "of the peer") == 0);

    strcpy(pair->near.bytes, "for the peer");
    OK(rpma_write(conn, pair->far.remote, 64, pair->near.mr, 0, 13, ALWAYS, NUMBER(2)));
    EXPECT(conn, NUMBER(2), RPMA_OP_WRITE, 13, 0, 0);
    CHECK(strcmp(pair->far.bytes + 64, "for the peer") == 0);

    /* The library of 0.10 carried out a flush by a read, and reported that. */
    OK(rpma_write(conn, pair->far.remote, 128, pair->near.mr, 0, 13, ON_ERROR, NUMBER(3)));
    OK(rpma_flush(conn, pair->far.remote, 128, 13, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NUMBER(4)));
    EXPECT_FROM(pair->client_cq, NUMBER(4), RPMA_OP_READ, 13, 0, 0);
    CHECK(strcmp(pair->far.bytes + 128, "for the peer") == 0);

    OK(rpma_write_atomic(conn, pair->far.remote, 256, pair->near.mr, 4, ALWAYS, NUMBER(5)));
    EXPECT(conn, NUMBER(5), RPMA_OP_WRITE, RPMA_ATOMIC_WRITE_ALIGNMENT, 0, 0);
    CHECK(memcmp(pair->far.bytes + 256, "the peer", 9) == 0);
    INVALID(rpma_write_atomic(conn, pair->far.remote, 257, pair->near.mr, 0, ALWAYS, NULL));
    INVALID(rpma_write_atomic(conn, pair->far.remote, 256, pair->near.mr, 0, 0, NULL));

    OK(rpma_recv(pair->server, NULL, 0, 0, NUMBER(6)));
    OK(rpma_write_with_imm(conn, pair->far.remote, 512, pair->near.mr, 0, 13, ALWAYS, IMM, NUMBER(7)));
    EXPECT(pair->server, NUMBER(6), RPMA_OP_RECV_RDMA_WITH_IMM, 13, IBV_WC_WITH_IMM, IMM);
    EXPECT(conn, NUMBER(7), RPMA_OP_WRITE, 13, 0, 0);
    CHECK(strcmp(pair->far.bytes + 512, "for the peer") == 0);
}

static void test_messages(struct pair *pair) {
    strcpy(pair->near.bytes, "hello");
    OK(rpma_recv(pair->server, pair->far.mr, 1024, 100, NUMBER(1)));
    OK(rpma_send(pair->client, pair->near.mr, 0, 6, ALWAYS, NUMBER(2)));
    EXPECT(pair->server, NUMBER(1), RPMA_OP_RECV, 6, 0, 0);
    EXPECT(pair->client, NUMBER(2), RPMA_OP_SEND, 6, 0, 0);
    CHECK(strcmp(pair->far.bytes + 1024, "hello") == 0);

    OK(rpma_recv(pair->server, pair->far.mr, 2048, 100, NUMBER(3)));
    OK(rpma_send_with_imm(pair->client, pair->near.mr, 0, 6, ALWAYS, IMM, NUMBER(4)));
    EXPECT_FROM(pair->server_cq, NUMBER(3), RPMA_OP_RECV, 6, IBV_WC_WITH_IMM, IMM);
    EXPECT_FROM(pair->client_cq, NUMBER(4), RPMA_OP_SEND, 6, 0, 0);
    CHECK(strcmp(pair->far.bytes + 2048, "hello") == 0);
}

static void test_descriptor(struct pair *pair) {
    struct rpma_completion completion;
    int fd = -1, of_queue = -2;
    OK(rpma_conn_get_completion_fd(pair->client, &fd));
    OK(rpma_cq_get_fd(pair->client_cq, &of_queue));
    CHECK(fd == of_queue);
    CHECK(!is_readable(fd));
    set_nonblocking(fd);
    RETURNS(RPMA_E_NO_COMPLETION, rpma_conn_completion_wait(pair->client));
    RETURNS(RPMA_E_NO_COMPLETION, rpma_conn_completion_get(pair->client, &completion));
    OK(rpma_read(pair->client, pair->near.mr, 0, pair->far.remote, 0, 8, ALWAYS, NUMBER(1)));
    wait_readable(fd);
    EXPECT(pair->client, NUMBER(1), RPMA_OP_READ, 8, 0, 0);
    CHECK(!is_readable(fd));

    INVALID(rpma_conn_get_completion_fd(pair->client, NULL));
    INVALID(rpma_conn_completion_get(pair->client, NULL));
    INVALID(rpma_cq_get_completion(pair->client_cq, NULL));
}

int main(void) {
    struct pair pair = open_pair();
    test_accesses(&pair);
    test_messages(&pair);
    test_descriptor(&pair);
    close_pair(&pair);
    return 0;
}
