/* Every operation between two connections, and every field of its completion. */

#include "check.h"

static void expect_immediate(struct rpma_cq *cq, uint64_t context, enum ibv_wc_opcode opcode,
                             uint32_t byte_len, uint32_t qp_num) {
    expect_fields(cq, context, opcode, byte_len, qp_num, IBV_WC_WITH_IMM, IMM);
}

static void test_accesses(void) {
    struct pair pair = open_pair();

    strcpy(pair.far.bytes + 8, "of the peer");
    OK(rpma_read(pair.client, pair.near.mr, 16, pair.far.remote, 8, 12, ALWAYS, NUMBER(1)));
    expect_completion(pair.client_cq, 1, IBV_WC_RDMA_READ, 12, pair.client_qp);
    CHECK(strcmp(pair.near.bytes + 16, "of the peer") == 0);

    strcpy(pair.near.bytes, "for the peer");
    OK(rpma_write(pair.client, pair.far.remote, 64, pair.near.mr, 0, 13, ALWAYS, NUMBER(2)));
    expect_completion(pair.client_cq, 2, IBV_WC_RDMA_WRITE, 13, pair.client_qp);
    CHECK(strcmp(pair.far.bytes + 64, "for the peer") == 0);

    /* A success that is not to be reported is not; the next completion tells of it. */
    OK(rpma_write(pair.client, pair.far.remote, 128, pair.near.mr, 0, 13, ON_ERROR, NUMBER(3)));
    OK(rpma_atomic_write(pair.client, pair.far.remote, 256, "12345678", ALWAYS, NUMBER(4)));
    expect_completion(pair.client_cq, 4, IBV_WC_RDMA_WRITE, 8, pair.client_qp);
    CHECK(strcmp(pair.far.bytes + 128, "for the peer") == 0);
    CHECK(memcmp(pair.far.bytes + 256, "12345678", 9) == 0);

    OK(rpma_write_atomic(pair.client, pair.far.remote, 512, pair.near.mr, 4, ALWAYS, NUMBER(5)));
    expect_completion(pair.client_cq, 5, IBV_WC_RDMA_WRITE, 8, pair.client_qp);
    CHECK(memcmp(pair.far.bytes + 512, "the peer", 9) == 0);

    OK(rpma_write(pair.client, pair.far.remote, 0, pair.near.mr, 0, 13, ON_ERROR, NUMBER(6)));
    OK(rpma_flush(pair.client, pair.far.remote, 0, 13, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NUMBER(7)));
    expect_completion(pair.client_cq, 7, IBV_WC_RDMA_READ, 13, pair.client_qp);
    CHECK(strcmp(pair.far.bytes, "for the peer") == 0);

    OK(rpma_recv(pair.server, pair.far.mr, 1024, 8, NUMBER(8)));
    OK(rpma_write_with_imm(pair.client, pair.far.remote, 700, pair.near.mr, 0, 13, ALWAYS, IMM, NUMBER(9)));
    expect_completion(pair.client_cq, 9, IBV_WC_RDMA_WRITE, 13, pair.client_qp);
    expect_immediate(pair.server_cq, 8, IBV_WC_RECV_RDMA_WITH_IMM, 13, pair.server_qp);
    CHECK(strcmp(pair.far.bytes + 700, "for the peer") == 0);

    /* Accesses of no bytes need no memory. */
    OK(rpma_read(pair.client, NULL, 0, NULL, 0, 0, ALWAYS, NUMBER(10)));
    expect_completion(pair.client_cq, 10, IBV_WC_RDMA_READ, 0, pair.client_qp);
    OK(rpma_write(pair.client, NULL, 0, NULL, 0, 0, ALWAYS, NUMBER(11)));
    expect_completion(pair.client_cq, 11, IBV_WC_RDMA_WRITE, 0, pair.client_qp);
    OK(rpma_recv(pair.server, NULL, 0, 0, NUMBER(12)));
    OK(rpma_write_with_imm(pair.client, NULL, 0, NULL, 0, 0, ON_ERROR, IMM, NUMBER(13)));
    expect_immediate(pair.server_cq, 12, IBV_WC_RECV_RDMA_WITH_IMM, 0, pair.server_qp);

    close_pair(&pair);
}

/* An access with memory on one side only, or with a place and no memory. */
#define INCOMPLETE_ACCESSES(conn, near, far, access)   \
    do {                                               \
        INVALID(access(NULL, near, 0, far, 0, 1));     \
        INVALID(access(conn, NULL, 0, far, 0, 0));     \
        INVALID(access(conn, NULL, 0, far, 0, 1));     \
        INVALID(access(conn, near, 0, NULL, 0, 0));    \
        INVALID(access(conn, near, 0, NULL, 0, 1));    \
        INVALID(access(conn, NULL, 1, NULL, 0, 0));    \
        INVALID(access(conn, NULL, 0, NULL, 1, 0));    \
        INVALID(access(conn, NULL, 0, NULL, 0, 1));    \
        INVALID(access(conn, near, 4000, far, 0, 97)); \
        INVALID(access(conn, near, (size_t)-1, far, 0, 2)); \
    } while (0)

static void test_invalid_accesses(void) {
    struct pair pair = open_pair();
    struct rpma_conn *conn = pair.client;
    struct rpma_mr_local *mr = pair.near.mr, *useless = NULL;
    struct rpma_mr_remote *remote = pair.far.remote;

#define READ(conn, local, offset, remote, remote_offset, len) \
    rpma_read(conn, local, offset, remote, remote_offset, len, ALWAYS, NULL)
#define WRITE(conn, local, offset, remote, remote_offset, len) \
    rpma_write(conn, remote, remote_offset, local, offset, len, ALWAYS, NULL)
#define WRITE_WITH_IMM(conn, local, offset, remote, remote_offset, len) \
    rpma_write_with_imm(conn, remote, remote_offset, local, offset, len, ALWAYS, IMM, NULL)
    INCOMPLETE_ACCESSES(conn, mr, remote, READ);
    INCOMPLETE_ACCESSES(conn, mr, remote, WRITE);
    INCOMPLETE_ACCESSES(conn, mr, remote, WRITE_WITH_IMM);
    INVALID(rpma_read(conn, mr, 0, remote, 0, 1, 0, NULL));
    INVALID(rpma_write(conn, remote, 0, mr, 0, 1, 0, NULL));
    INVALID(rpma_write_with_imm(conn, remote, 0, mr, 0, 1, 0, IMM, NULL));

    INVALID(rpma_atomic_write(NULL, remote, 0, "12345678", ALWAYS, NULL));
    INVALID(rpma_atomic_write(conn, NULL, 0, "12345678", ALWAYS, NULL));
    INVALID(rpma_atomic_write(conn, remote, 0, NULL, ALWAYS, NULL));
    INVALID(rpma_atomic_write(conn, remote, 0, "12345678", 0, NULL));
    INVALID(rpma_atomic_write(conn, remote, 4, "12345678", ALWAYS, NULL));
    INVALID(rpma_write_atomic(NULL, remote, 0, mr, 0, ALWAYS, NULL));
    INVALID(rpma_write_atomic(conn, NULL, 0, mr, 0, ALWAYS, NULL));
    INVALID(rpma_write_atomic(conn, remote, 0, NULL, 0, ALWAYS, NULL));
    INVALID(rpma_write_atomic(conn, remote, 4, mr, 0, ALWAYS, NULL));
    INVALID(rpma_write_atomic(conn, remote, 0, mr, 4089, ALWAYS, NULL));
    INVALID(rpma_write_atomic(conn, remote, 0, mr, 0, 0, NULL));

    INVALID(rpma_flush(NULL, remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NULL));
    INVALID(rpma_flush(conn, NULL, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NULL));
    INVALID(rpma_flush(conn, remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, 0, NULL));
    INVALID(rpma_flush(conn, remote, 0, 8, (enum rpma_flush_type)2, ALWAYS, NULL));
    INVALID(rpma_flush(conn, remote, 0, 8, (enum rpma_flush_type)-1, ALWAYS, NULL));

    /* The region is not persistent, and the peer has not said that it flushes directly. */
    RETURNS(RPMA_E_NOSUPP, rpma_flush(conn, remote, 0, 8, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS, NULL));
    struct rpma_peer_cfg *peer_cfg = NULL;
    OK(rpma_peer_cfg_new(&peer_cfg));
    OK(rpma_peer_cfg_set_direct_write_to_pmem(peer_cfg, true));
    INVALID(rpma_conn_apply_remote_peer_cfg(conn, NULL));
    OK(rpma_conn_apply_remote_peer_cfg(conn, peer_cfg));
    OK(rpma_peer_cfg_delete(&peer_cfg));
    RETURNS(RPMA_E_NOSUPP, rpma_flush(conn, remote, 0, 8, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS, NULL));

    /* What hardware could not write to takes no data. Anything can be sent, and written to the peer. */
    OK(rpma_mr_reg(pair.listener.peer, pair.near.bytes, 8, RPMA_MR_USAGE_READ_SRC, &useless));
    INVALID(rpma_read(conn, useless, 0, remote, 0, 8, ALWAYS, NULL));
    INVALID(rpma_recv(conn, useless, 0, 8, NULL));
    OK(rpma_write(conn, remote, 0, useless, 0, 8, ALWAYS, NUMBER(77)));
    expect_completion(pair.client_cq, 77, IBV_WC_RDMA_WRITE, 8, pair.client_qp);
    OK(rpma_write_atomic(conn, remote, 0, useless, 0, ALWAYS, NUMBER(78)));
    expect_completion(pair.client_cq, 78, IBV_WC_RDMA_WRITE, 8, pair.client_qp);
    INVALID(rpma_write(conn, remote, 0, useless, 1, 8, ALWAYS, NULL));
    INVALID(rpma_write_with_imm(conn, remote, 0, useless, 1, 8, ALWAYS, IMM, NULL));
    INVALID(rpma_write_atomic(conn, remote, 0, useless, 1, ALWAYS, NULL));
    INVALID(rpma_send(conn, useless, 1, 8, ALWAYS, NULL));
    INVALID(rpma_send_with_imm(conn, useless, 1, 8, ALWAYS, IMM, NULL));
    OK(rpma_mr_dereg(&useless));

    close_pair(&pair);
}

static void test_messages(void) {
    struct pair pair = open_pair();
    struct rpma_cq *rcq = (struct rpma_cq *)&pair;
    struct ibv_wc wcs[4];
    int got = 0, fd = -1;

    OK(rpma_conn_get_rcq(pair.client, &rcq));
    CHECK(rcq == NULL);
    INVALID(rpma_conn_get_rcq(pair.client, NULL));
    INVALID(rpma_conn_get_cq(pair.client, NULL));
    INVALID(rpma_conn_get_qp_num(pair.client, NULL));
    INVALID(rpma_conn_get_event_fd(pair.client, NULL));
    INVALID(rpma_conn_next_event(pair.client, NULL));
    INVALID(rpma_conn_get_private_data(pair.client, NULL));
    RETURNS(RPMA_E_NOT_SHARED_CHNL, rpma_conn_get_compl_fd(pair.client, &fd));
    RETURNS(RPMA_E_NOT_SHARED_CHNL, rpma_conn_wait(pair.client, 0, &rcq, NULL));
    INVALID(rpma_conn_get_compl_fd(pair.client, NULL));
    INVALID(rpma_conn_wait(pair.client, 0, NULL, NULL));

    strcpy(pair.near.bytes, "hello");
    OK(rpma_recv(pair.server, pair.far.mr, 8, 100, NUMBER(1)));
    OK(rpma_send(pair.client, pair.near.mr, 0, 6, ALWAYS, NUMBER(2)));
    expect_completion(pair.server_cq, 1, IBV_WC_RECV, 6, pair.server_qp);
    expect_completion(pair.client_cq, 2, IBV_WC_SEND, 6, pair.client_qp);
    CHECK(strcmp(pair.far.bytes + 8, "hello") == 0);

    OK(rpma_recv(pair.server, pair.far.mr, 200, 100, NUMBER(3)));
    OK(rpma_send_with_imm(pair.client, pair.near.mr, 0, 6, ON_ERROR, IMM, NUMBER(4)));
    expect_immediate(pair.server_cq, 3, IBV_WC_RECV, 6, pair.server_qp);

    OK(rpma_recv(pair.server, NULL, 0, 0, NUMBER(5)));
    OK(rpma_send(pair.client, NULL, 0, 0, ALWAYS, NUMBER(6)));
    expect_completion(pair.server_cq, 5, IBV_WC_RECV, 0, pair.server_qp);
    expect_completion(pair.client_cq, 6, IBV_WC_SEND, 0, pair.client_qp);

    /* The descriptor is readable while there is a completion, and only then. */
    OK(rpma_cq_get_fd(pair.server_cq, &fd));
    INVALID(rpma_cq_get_fd(pair.server_cq, NULL));
    CHECK(!is_readable(fd));
    set_nonblocking(fd);
    RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_wait(pair.server_cq));
    RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(pair.server_cq, 1, wcs, NULL));
    OK(rpma_recv(pair.server, pair.far.mr, 0, 100, NUMBER(10)));
    OK(rpma_send(pair.client, pair.near.mr, 0, 6, ALWAYS, NUMBER(20)));
    expect_completion(pair.client_cq, 20, IBV_WC_SEND, 6, pair.client_qp);
    wait_readable(fd);
    OK(rpma_cq_wait(pair.server_cq));
    OK(rpma_cq_get_wc(pair.server_cq, 4, wcs, &got));
    CHECK(got == 1 && wcs[0].wr_id == 10);
    CHECK(!is_readable(fd));
    INVALID(rpma_cq_get_wc(pair.server_cq, 0, wcs, &got));
    INVALID(rpma_cq_get_wc(pair.server_cq, -1, wcs, &got));
    INVALID(rpma_cq_get_wc(pair.server_cq, 1, NULL, &got));
    INVALID(rpma_cq_get_wc(pair.server_cq, 2, wcs, NULL));

    INVALID(rpma_send(pair.client, pair.near.mr, 0, 6, 0, NULL));
    INVALID(rpma_send(pair.client, NULL, 1, 0, ALWAYS, NULL));
    INVALID(rpma_send(pair.client, NULL, 0, 1, ALWAYS, NULL));
    INVALID(rpma_send(pair.client, pair.near.mr, 4096, 1, ALWAYS, NULL));
    INVALID(rpma_send_with_imm(pair.client, pair.near.mr, 0, 6, 0, 1, NULL));
    INVALID(rpma_send_with_imm(pair.client, NULL, 0, 1, ALWAYS, 1, NULL));
    INVALID(rpma_send_with_imm(pair.client, NULL, 1, 0, ALWAYS, 1, NULL));
    INVALID(rpma_send_with_imm(pair.client, pair.near.mr, 4096, 1, ALWAYS, 1, NULL));
    INVALID(rpma_recv(pair.client, NULL, 1, 0, NULL));
    INVALID(rpma_recv(pair.client, NULL, 0, 1, NULL));
    INVALID(rpma_recv(pair.client, pair.near.mr, 1, 4096, NULL));

    /* As many operations as the queue holds are outstanding, since nothing reads the completions. */
    for (int number = 0; number < 10; number++) {
        OK(rpma_recv(pair.server, pair.far.mr, 0, 8, NUMBER(30)));
    }
    RETURNS(RPMA_E_PROVIDER, rpma_recv(pair.server, pair.far.mr, 0, 8, NUMBER(30)));

    close_pair(&pair);
}

/* The function of 0.9. Its completion has 24 bytes. completions_of_0_10.c is about those of 0.10. */
__asm__(".symver early_completion_get, rpma_conn_completion_get@LIBRPMA_1.0");
int early_completion_get(struct rpma_conn *conn, struct legacy_completion *cmpl);

static void test_completion_of_0_9(void) {
    struct pair pair = open_pair();
    struct legacy_completion completion;
    OK(rpma_write(pair.client, pair.far.remote, 0, pair.near.mr, 0, 60, ALWAYS, NUMBER(8)));
    OK(rpma_conn_completion_wait(pair.client));
    memset(&completion, 0xee, sizeof(completion));
    OK(early_completion_get(pair.client, &completion));
    CHECK(completion.op_context == NUMBER(8) && completion.op == LEGACY_WRITE);
    CHECK(completion.byte_len == 60 && completion.op_status == IBV_WC_SUCCESS);
    CHECK(completion.imm == 0xeeeeeeee);
    close_pair(&pair);
}

/* Two queues that share a channel. */
static void test_shared_channel(void) {
    struct listener listener = open_listener();
    OK(rpma_conn_cfg_set_rcq_size(listener.cfg, 10));
    OK(rpma_conn_cfg_set_compl_channel(listener.cfg, true));
    struct pair pair = connect_pair(listener);
    struct rpma_cq *rcq = NULL, *found = NULL;
    int fd = -1;
    bool is_rcq = false;

    OK(rpma_conn_get_rcq(pair.server, &rcq));
    CHECK(rcq != NULL && rcq != pair.server_cq);
    OK(rpma_recv(pair.server, pair.far.mr, 0, 100, NUMBER(1)));
    OK(rpma_send(pair.client, pair.near.mr, 0, 6, ON_ERROR, NUMBER(2)));
    RETURNS(RPMA_E_SHARED_CHANNEL, rpma_cq_wait(rcq));
    OK(rpma_conn_get_compl_fd(pair.server, &fd));
    wait_readable(fd);
    OK(rpma_conn_wait(pair.server, 0, &found, &is_rcq));
    CHECK(found == rcq && is_rcq);
    struct ibv_wc wc;
    OK(rpma_cq_get_wc(rcq, 1, &wc, NULL));
    CHECK(wc.wr_id == 1 && wc.opcode == IBV_WC_RECV && wc.byte_len == 6 && wc.qp_num == pair.server_qp);
    OK(rpma_write(pair.server, pair.near.remote, 0, pair.far.mr, 0, 8, ALWAYS, NUMBER(3)));
    OK(rpma_conn_wait(pair.server, 0, &found, NULL));
    CHECK(found == pair.server_cq);
    OK(rpma_conn_wait(pair.server, 0, &found, &is_rcq));
    CHECK(found == pair.server_cq && !is_rcq);
    OK(rpma_cq_get_wc(pair.server_cq, 1, &wc, NULL));
    CHECK(wc.wr_id == 3 && wc.opcode == IBV_WC_RDMA_WRITE);
    RETURNS(RPMA_E_SHARED_CHANNEL, rpma_conn_completion_wait(pair.server));
    set_nonblocking(fd);
    RETURNS(RPMA_E_NO_COMPLETION, rpma_conn_wait(pair.server, 0, &found, &is_rcq));

    close_pair(&pair);
}

static void test_shared_receives(void) {
    struct listener listener = open_listener();
    struct rpma_conn_cfg *cfg = patient_cfg();
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *client = NULL, *server = NULL;
    struct rpma_srq *srq = NULL;
    struct rpma_cq *rcq = NULL;
    uint32_t qp_num = 0;
    struct memory near = open_memory(listener.peer), far = open_memory(listener.peer);

    OK(rpma_srq_new(listener.peer, NULL, &srq));
    OK(rpma_srq_get_rcq(srq, &rcq));
    OK(rpma_conn_cfg_set_srq(cfg, srq));
    client = request_connection(&listener);
    OK(rpma_ep_next_conn_req(listener.ep, cfg, &request));
    INVALID(rpma_conn_req_recv(request, far.mr, 0, 8, NUMBER(1)));
    OK(rpma_conn_req_connect(&request, NULL, &server));
    expect_event(server, RPMA_CONN_ESTABLISHED);
    expect_event(client, RPMA_CONN_ESTABLISHED);
    INVALID(rpma_srq_recv(srq, far.mr, 4090, 8, NULL));
    INVALID(rpma_recv(server, far.mr, 0, 8, NULL));
    OK(rpma_srq_recv(srq, far.mr, 0, 100, NUMBER(1)));
    OK(rpma_send(client, near.mr, 0, 6, ON_ERROR, NULL));
    OK(rpma_conn_get_qp_num(server, &qp_num));
    expect_completion(rcq, 1, IBV_WC_RECV, 6, qp_num);
    OK(rpma_conn_delete(&client));
    expect_event(server, RPMA_CONN_CLOSED);
    OK(rpma_conn_delete(&server));
    OK(rpma_conn_cfg_delete(&cfg));
    OK(rpma_srq_delete(&srq));
    close_memory(&near);
    close_memory(&far);
    close_listener(&listener);
}

/* As over hardware, any region can be sent from, and messages fill each region that can be written to. */
static void test_messages_in_regions_for_accesses(void) {
    static const int usages[] = {RPMA_MR_USAGE_READ_DST, RPMA_MR_USAGE_WRITE_SRC, RPMA_MR_USAGE_WRITE_DST};
    for (size_t index = 0; index < 3; index++) {
        struct pair pair = open_pair();
        /* Memory of its own: no other region may keep the receives. */
        char *sent = allocate(4096), *received = allocate(4096);
        struct rpma_mr_local *source = NULL, *destination = NULL;
        OK(rpma_mr_reg(pair.listener.peer, sent, 4096, RPMA_MR_USAGE_READ_SRC, &source));
        OK(rpma_mr_reg(pair.listener.peer, received, 4096, usages[index], &destination));
        strcpy(sent, "message");
        INVALID(rpma_recv(pair.server, source, 0, 8, NULL));
        OK(rpma_recv(pair.server, destination, 0, 8, NUMBER(1)));
        OK(rpma_send(pair.client, source, 0, 8, ALWAYS, NUMBER(2)));
        expect_completion(pair.server_cq, 1, IBV_WC_RECV, 8, pair.server_qp);
        expect_completion(pair.client_cq, 2, IBV_WC_SEND, 8, pair.client_qp);
        CHECK(strcmp(received, "message") == 0);

        /* No message reaches memory that is deregistered. */
        OK(rpma_recv(pair.server, destination, 8, 8, NUMBER(3)));
        OK(rpma_mr_dereg(&destination));
        struct ibv_wc wc = next_completion(pair.server_cq);
        CHECK(wc.wr_id == 3 && wc.status == IBV_WC_WR_FLUSH_ERR);
        OK(rpma_send(pair.client, source, 0, 8, ALWAYS, NUMBER(4)));
        expect_completion(pair.client_cq, 4, IBV_WC_SEND, 8, pair.client_qp);
        CHECK(received[8] == 0);
        OK(rpma_mr_dereg(&source));
        close_pair(&pair);
        free(sent);
        free(received);
    }
}

int main(void) {
    test_messages_in_regions_for_accesses();
    test_accesses();
    test_invalid_accesses();
    test_messages();
    test_completion_of_0_9();
    test_shared_channel();
    test_shared_receives();
    return 0;
}
