/* A program of librpma 0.10: its five functions that later versions have no more, and every field of the
 * completion of each operation. */

#include <stddef.h>

#include "pair.h"

#define USAGE_ALL_VOLATILE                                                                      \
    (RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC |                \
     RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_SEND |       \
     RPMA_MR_USAGE_RECV)
#define IMM 0x01020304u

_Static_assert(RPMA_OP_READ == 0 && RPMA_OP_WRITE == 1 && RPMA_OP_FLUSH == 2, "numbers of 0.10");
_Static_assert(RPMA_OP_SEND == 3 && RPMA_OP_RECV == 4 && RPMA_OP_RECV_RDMA_WITH_IMM == 5, "numbers of 0.10");
_Static_assert(sizeof(struct rpma_completion) == 32, "the size of 0.10");
_Static_assert(offsetof(struct rpma_completion, op) == 8, "the layout of 0.10");
_Static_assert(offsetof(struct rpma_completion, byte_len) == 12, "the layout of 0.10");
_Static_assert(offsetof(struct rpma_completion, op_status) == 16, "the layout of 0.10");
_Static_assert(offsetof(struct rpma_completion, flags) == 20, "the layout of 0.10");
_Static_assert(offsetof(struct rpma_completion, imm) == 24, "the layout of 0.10");

static const int ALWAYS = RPMA_F_COMPLETION_ALWAYS;
static const int ON_ERROR = RPMA_F_COMPLETION_ON_ERROR;

/* Two regions of this process, and the view of the second one from the other side. */
struct regions {
    char *near, *far;
    struct rpma_mr_local *near_mr, *far_mr;
    struct rpma_mr_remote *remote;
};

static struct regions open_regions(struct rpma_peer *peer) {
    struct regions regions = {.near = allocate(4096), .far = allocate(4096)};
    OK(rpma_mr_reg(peer, regions.near, 4096, USAGE_ALL_VOLATILE, &regions.near_mr));
    OK(rpma_mr_reg(peer, regions.far, 4096, USAGE_ALL_VOLATILE, &regions.far_mr));
    regions.remote = as_remote(regions.far_mr);
    return regions;
}

static void close_regions(struct regions *regions) {
    OK(rpma_mr_remote_delete(&regions->remote));
    OK(rpma_mr_dereg(&regions->near_mr));
    OK(rpma_mr_dereg(&regions->far_mr));
    free(regions->near);
    free(regions->far);
}

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

static void test_accesses(struct pair *pair, struct regions *regions) {
    struct rpma_conn *conn = pair->client;
    strcpy(regions->far, "of the peer");
    OK(rpma_read(conn, regions->near_mr, 0, regions->remote, 0, 12, ALWAYS, NUMBER(1)));
    expect(conn, NUMBER(1), RPMA_OP_READ, 12, 0, 0);
    CHECK(strcmp(regions->near, "of the peer") == 0);

    strcpy(regions->near, "for the peer");
    OK(rpma_write(conn, regions->remote, 64, regions->near_mr, 0, 13, ALWAYS, NUMBER(2)));
    expect(conn, NUMBER(2), RPMA_OP_WRITE, 13, 0, 0);
    CHECK(strcmp(regions->far + 64, "for the peer") == 0);

    /* The library of 0.10 carried out a flush by a read, and reported that. */
    OK(rpma_write(conn, regions->remote, 128, regions->near_mr, 0, 13, ON_ERROR, NUMBER(3)));
    OK(rpma_flush(conn, regions->remote, 128, 13, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NUMBER(4)));
    expect_from(pair->client_cq, NUMBER(4), RPMA_OP_READ, 13, 0, 0);
    CHECK(strcmp(regions->far + 128, "for the peer") == 0);

    OK(rpma_write_atomic(conn, regions->remote, 256, regions->near_mr, 4, ALWAYS, NUMBER(5)));
    expect(conn, NUMBER(5), RPMA_OP_WRITE, RPMA_ATOMIC_WRITE_ALIGNMENT, 0, 0);
    CHECK(memcmp(regions->far + 256, "the peer", 9) == 0);
    INVALID(rpma_write_atomic(conn, regions->remote, 257, regions->near_mr, 0, ALWAYS, NULL));
    INVALID(rpma_write_atomic(conn, regions->remote, 256, regions->near_mr, 0, 0, NULL));

    OK(rpma_recv(pair->server, NULL, 0, 0, NUMBER(6)));
    OK(rpma_write_with_imm(conn, regions->remote, 512, regions->near_mr, 0, 13, ALWAYS, IMM, NUMBER(7)));
    expect(pair->server, NUMBER(6), RPMA_OP_RECV_RDMA_WITH_IMM, 13, IBV_WC_WITH_IMM, IMM);
    expect(conn, NUMBER(7), RPMA_OP_WRITE, 13, 0, 0);
    CHECK(strcmp(regions->far + 512, "for the peer") == 0);
}

static void test_messages(struct pair *pair, struct regions *regions) {
    strcpy(regions->near, "hello");
    OK(rpma_recv(pair->server, regions->far_mr, 1024, 100, NUMBER(1)));
    OK(rpma_send(pair->client, regions->near_mr, 0, 6, ALWAYS, NUMBER(2)));
    expect(pair->server, NUMBER(1), RPMA_OP_RECV, 6, 0, 0);
    expect(pair->client, NUMBER(2), RPMA_OP_SEND, 6, 0, 0);
    CHECK(strcmp(regions->far + 1024, "hello") == 0);

    OK(rpma_recv(pair->server, regions->far_mr, 2048, 100, NUMBER(3)));
    OK(rpma_send_with_imm(pair->client, regions->near_mr, 0, 6, ALWAYS, IMM, NUMBER(4)));
    expect_from(pair->server_cq, NUMBER(3), RPMA_OP_RECV, 6, IBV_WC_WITH_IMM, IMM);
    expect_from(pair->client_cq, NUMBER(4), RPMA_OP_SEND, 6, 0, 0);
    CHECK(strcmp(regions->far + 2048, "hello") == 0);
}

static void test_descriptor(struct pair *pair, struct regions *regions) {
    struct rpma_completion completion;
    int fd = -1, of_queue = -2;
    OK(rpma_conn_get_completion_fd(pair->client, &fd));
    OK(rpma_cq_get_fd(pair->client_cq, &of_queue));
    CHECK(fd == of_queue);
    CHECK(!is_readable(fd));
    set_nonblocking(fd);
    RETURNS(RPMA_E_NO_COMPLETION, rpma_conn_completion_wait(pair->client));
    RETURNS(RPMA_E_NO_COMPLETION, rpma_conn_completion_get(pair->client, &completion));
    OK(rpma_read(pair->client, regions->near_mr, 0, regions->remote, 0, 8, ALWAYS, NUMBER(1)));
    wait_readable(fd);
    expect(pair->client, NUMBER(1), RPMA_OP_READ, 8, 0, 0);
    CHECK(!is_readable(fd));

    INVALID(rpma_conn_get_completion_fd(NULL, &fd));
    INVALID(rpma_conn_get_completion_fd(pair->client, NULL));
    INVALID(rpma_conn_completion_wait(NULL));
    INVALID(rpma_conn_completion_get(NULL, &completion));
    INVALID(rpma_conn_completion_get(pair->client, NULL));
    INVALID(rpma_cq_get_completion(NULL, &completion));
    INVALID(rpma_cq_get_completion(pair->client_cq, NULL));
}

/* An access that the peer refuses, and a receive that ends with the connection. */
static void test_failures(void) {
    struct pair pair;
    connect_pair(&pair, NULL);
    struct regions regions = open_regions(pair.peer);
    struct rpma_completion completion;
    OK(rpma_recv(pair.client, regions.near_mr, 0, 8, NUMBER(1)));
    OK(rpma_write(pair.client, regions.remote, 4096, regions.near_mr, 0, 8, ON_ERROR, NUMBER(2)));
    OK(rpma_conn_completion_wait(pair.client));
    OK(rpma_conn_completion_get(pair.client, &completion));
    CHECK(completion.op_context == NUMBER(2) && completion.op_status == IBV_WC_REM_ACCESS_ERR);
    OK(rpma_cq_wait(pair.client_cq));
    OK(rpma_cq_get_completion(pair.client_cq, &completion));
    CHECK(completion.op_context == NUMBER(1) && completion.op_status == IBV_WC_WR_FLUSH_ERR);
    close_pair(&pair);
    close_regions(&regions);
}

int main(void) {
    struct pair pair;
    connect_pair(&pair, NULL);
    struct regions regions = open_regions(pair.peer);
    test_accesses(&pair, &regions);
    test_messages(&pair, &regions);
    test_descriptor(&pair, &regions);
    close_pair(&pair);
    close_regions(&regions);
    test_failures();
    return 0;
}
