/* Every function that needs no connection: what it returns, and which arguments it refuses. */

#include "check.h"

#include <stdarg.h>

static int logged;
static enum rpma_log_level last_level;
static char last_message[256];

static void log_message(enum rpma_log_level level, const char *file, const int line, const char *function,
                        const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_message, sizeof(last_message), format, arguments);
    va_end(arguments);
    CHECK(file != NULL && *file != '\0' && line > 0 && function != NULL && *function != '\0');
    last_level = level;
    logged++;
}

/* Calls a function of two pointers: with one of them null, and with both. */
#define GETTER(function, object, place)    \
    do {                                   \
        INVALID(function(NULL, place));    \
        INVALID(function(object, NULL));   \
        OK(function(object, place));       \
    } while (0)

/* Deletes an object, which is null then. Null is deleted, too. */
#define DELETE_TWICE(function, object) \
    do {                               \
        OK(function(&(object)));       \
        CHECK((object) == NULL);       \
        OK(function(&(object)));       \
        INVALID(function(NULL));       \
    } while (0)

static void test_texts(void) {
    for (int error = RPMA_E_NOT_SHARED_CHNL - 2; error <= RPMA_E_UNKNOWN + 2; error++) {
        CHECK(*rpma_err_2str(error) != '\0');
    }
    CHECK(strcmp(rpma_err_2str(0), rpma_err_2str(RPMA_E_INVAL)) != 0);
    CHECK(strcmp(rpma_err_2str(7), rpma_err_2str(RPMA_E_UNKNOWN)) == 0);
    for (int event = RPMA_CONN_UNDEFINED - 1; event <= RPMA_CONN_UNREACHABLE + 1; event++) {
        CHECK(*rpma_utils_conn_event_2str((enum rpma_conn_event)event) != '\0');
    }
    for (int status = IBV_WC_SUCCESS; status <= IBV_WC_TM_RNDV_INCOMPLETE + 1; status++) {
        CHECK(*ibv_wc_status_str((enum ibv_wc_status)status) != '\0');
    }
}

static void test_log(void) {
    enum rpma_log_level level = RPMA_LOG_DISABLED;
    OK(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &level));
    CHECK(level == RPMA_LOG_LEVEL_WARNING);
    OK(rpma_log_get_threshold(RPMA_LOG_THRESHOLD_AUX, &level));
    CHECK(level == RPMA_LOG_DISABLED);
    INVALID(rpma_log_get_threshold(RPMA_LOG_THRESHOLD_MAX, &level));
    INVALID(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, NULL));
    INVALID(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_MAX, RPMA_LOG_LEVEL_INFO));
    INVALID(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, (enum rpma_log_level)(RPMA_LOG_LEVEL_DEBUG + 1)));
    INVALID(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, (enum rpma_log_level)(RPMA_LOG_DISABLED - 1)));

    OK(rpma_log_set_function(log_message));
    INVALID(rpma_peer_new(NULL, NULL));
    CHECK(logged == 1);
    CHECK(last_level == RPMA_LOG_LEVEL_ERROR);
    CHECK(strstr(last_message, "null") != NULL);
    CHECK(last_message[strlen(last_message) - 1] == '\n');
    OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED));
    OK(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &level));
    CHECK(level == RPMA_LOG_DISABLED);
    INVALID(rpma_peer_new(NULL, NULL));
    CHECK(logged == 1);
    OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_DEBUG));
    struct rpma_peer *peer = open_peer();
    OK(rpma_peer_delete(&peer));
    INVALID(rpma_peer_new(NULL, NULL));
    CHECK(logged > 1);
    OK(rpma_log_set_function(RPMA_LOG_USE_DEFAULT_FUNCTION));
    OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED));
    int before = logged;
    INVALID(rpma_peer_new(NULL, NULL));
    CHECK(logged == before);
}

static void test_contexts_and_peers(void) {
    struct ibv_context *local = NULL, *remote = NULL, *found = NULL;
    struct rpma_peer *peer = NULL;
    int is_capable = -1;
    OK(rpma_utils_get_ibv_context(ADDRESS, RPMA_UTIL_IBV_CONTEXT_LOCAL, &local));
    OK(rpma_utils_get_ibv_context("localhost", RPMA_UTIL_IBV_CONTEXT_LOCAL, &local));
    OK(rpma_utils_get_ibv_context("192.0.2.1", RPMA_UTIL_IBV_CONTEXT_REMOTE, &remote));
    CHECK(local != NULL && remote != NULL);
    /* A failure leaves the result alone, and the log says why. */
    OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_ERROR));
    OK(rpma_log_set_function(log_message));
    RETURNS(RPMA_E_PROVIDER, rpma_utils_get_ibv_context("192.0.2.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &found));
    CHECK(strstr(last_message, "192.0.2.1") != NULL && strstr(last_message, strerror(EADDRNOTAVAIL)) != NULL);
    RETURNS(RPMA_E_PROVIDER,
            rpma_utils_get_ibv_context("no-such-host.invalid", RPMA_UTIL_IBV_CONTEXT_REMOTE, &found));
    CHECK(strstr(last_message, "no-such-host.invalid: ") != NULL);
    OK(rpma_log_set_function(RPMA_LOG_USE_DEFAULT_FUNCTION));
    OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED));
    CHECK(found == NULL);
    INVALID(rpma_utils_get_ibv_context(NULL, RPMA_UTIL_IBV_CONTEXT_LOCAL, &local));
    INVALID(rpma_utils_get_ibv_context(ADDRESS, RPMA_UTIL_IBV_CONTEXT_LOCAL, NULL));
    INVALID(rpma_utils_get_ibv_context(ADDRESS, (enum rpma_util_ibv_context_type)2, &local));
    GETTER(rpma_utils_ibv_context_is_odp_capable, local, &is_capable);
    CHECK(is_capable == 1);

#ifdef INFINIBAND_VERBS_H
    /* A program may print what it has found. */
    CHECK(strcmp(local->device->name, "homespun") == 0);
    CHECK(local->device->transport_type == IBV_TRANSPORT_IB);
    CHECK(local->ops.poll_cq(NULL, 1, NULL) < 0);
    CHECK(local->ops.alloc_mw(NULL, IBV_MW_TYPE_1) == NULL);
    CHECK(local->ops.post_send(NULL, NULL, NULL) == ENOSYS);
#endif

    uint64_t foreign[64] = {0};
    INVALID(rpma_peer_new((struct ibv_context *)foreign, &peer));
    CHECK(peer == NULL);
    GETTER(rpma_peer_new, local, &peer);
    DELETE_TWICE(rpma_peer_delete, peer);
}

/* An attribute of a configuration: its default, and another value that it is set to. */
#define ATTRIBUTE(type, cfg, get, set, fallback, value) \
    do {                                                \
        type found = (value);                           \
        INVALID(get(NULL, &found));                     \
        CHECK(found == (value));                        \
        INVALID(get(cfg, NULL));                        \
        OK(get(cfg, &found));                           \
        CHECK(found == (fallback));                     \
        OK(set(cfg, value));                            \
        OK(get(cfg, &found));                           \
        CHECK(found == (value));                        \
        INVALID(set(NULL, value));                      \
    } while (0)

#define SIZE(cfg, get, set, fallback) ATTRIBUTE(uint32_t, cfg, get, set, fallback, 77)

static void test_peer_cfg(void) {
    struct rpma_peer_cfg *cfg = NULL, *copy = NULL;
    bool supported = false;
    uint8_t descriptor = 0xee;
    size_t size = 0;
    INVALID(rpma_peer_cfg_new(NULL));
    OK(rpma_peer_cfg_new(&cfg));
    ATTRIBUTE(bool, cfg, rpma_peer_cfg_get_direct_write_to_pmem, rpma_peer_cfg_set_direct_write_to_pmem,
              false, true);
    GETTER(rpma_peer_cfg_get_descriptor_size, cfg, &size);
    CHECK(size == 1);
    GETTER(rpma_peer_cfg_get_descriptor, cfg, &descriptor);
    CHECK(descriptor == 1);
    INVALID(rpma_peer_cfg_from_descriptor(NULL, 1, &copy));
    INVALID(rpma_peer_cfg_from_descriptor(&descriptor, 1, NULL));
    INVALID(rpma_peer_cfg_from_descriptor(&descriptor, 0, &copy));
    OK(rpma_peer_cfg_from_descriptor(&descriptor, 1, &copy));
    OK(rpma_peer_cfg_get_direct_write_to_pmem(copy, &supported));
    CHECK(supported);
    OK(rpma_peer_cfg_delete(&copy));
    DELETE_TWICE(rpma_peer_cfg_delete, cfg);
}

static void test_conn_cfg_and_srq(void) {
    struct rpma_conn_cfg *cfg = NULL;
    struct rpma_srq_cfg *srq_cfg = NULL;
    struct rpma_srq *srq = NULL, *found = NULL;
    struct rpma_cq *rcq = NULL;
    struct rpma_peer *peer = open_peer();

    INVALID(rpma_srq_cfg_new(NULL));
    OK(rpma_srq_cfg_new(&srq_cfg));
    SIZE(srq_cfg, rpma_srq_cfg_get_rq_size, rpma_srq_cfg_set_rq_size, 20);
    SIZE(srq_cfg, rpma_srq_cfg_get_rcq_size, rpma_srq_cfg_set_rcq_size, 20);
    INVALID(rpma_srq_new(NULL, srq_cfg, &srq));
    INVALID(rpma_srq_new(peer, srq_cfg, NULL));
    OK(rpma_srq_new(peer, srq_cfg, &srq));
    GETTER(rpma_srq_get_rcq, srq, &rcq);
    CHECK(rcq != NULL);
    INVALID(rpma_srq_recv(NULL, NULL, 0, 0, NULL));
    INVALID(rpma_srq_recv(srq, NULL, 1, 0, NULL));
    INVALID(rpma_srq_recv(srq, NULL, 0, 1, NULL));

    INVALID(rpma_conn_cfg_new(NULL));
    OK(rpma_conn_cfg_new(&cfg));
    ATTRIBUTE(int, cfg, rpma_conn_cfg_get_timeout, rpma_conn_cfg_set_timeout, RPMA_DEFAULT_TIMEOUT_MS, 4321);
    INVALID(rpma_conn_cfg_set_timeout(cfg, -1));
    SIZE(cfg, rpma_conn_cfg_get_cq_size, rpma_conn_cfg_set_cq_size, 10);
    SIZE(cfg, rpma_conn_cfg_get_rcq_size, rpma_conn_cfg_set_rcq_size, 0);
    SIZE(cfg, rpma_conn_cfg_get_sq_size, rpma_conn_cfg_set_sq_size, 10);
    SIZE(cfg, rpma_conn_cfg_get_rq_size, rpma_conn_cfg_set_rq_size, 10);
    ATTRIBUTE(bool, cfg, rpma_conn_cfg_get_compl_channel, rpma_conn_cfg_set_compl_channel, false, true);
    GETTER(rpma_conn_cfg_get_srq, cfg, &found);
    CHECK(found == NULL);
    GETTER(rpma_conn_cfg_set_srq, cfg, srq);
    OK(rpma_conn_cfg_get_srq(cfg, &found));
    CHECK(found == srq);
    /* A configuration only keeps the address. */
    OK(rpma_conn_cfg_set_srq(cfg, (struct rpma_srq *)NUMBER(0xCD12)));
    OK(rpma_conn_cfg_get_srq(cfg, &found));
    CHECK(found == NUMBER(0xCD12));
    OK(rpma_conn_cfg_set_srq(cfg, srq));

    /* A shared channel and a shared receive queue with a completion queue exclude each other. */
    struct rpma_conn_req *request = NULL;
    INVALID(rpma_conn_req_new(peer, ADDRESS, "7", cfg, &request));
    CHECK(request == NULL);

    DELETE_TWICE(rpma_conn_cfg_delete, cfg);
    DELETE_TWICE(rpma_srq_delete, srq);
    OK(rpma_srq_cfg_set_rcq_size(srq_cfg, 0));
    OK(rpma_srq_cfg_set_rq_size(srq_cfg, UINT32_MAX));
    RETURNS(RPMA_E_PROVIDER, rpma_srq_new(peer, srq_cfg, &srq));
    CHECK(srq == NULL);
    OK(rpma_srq_cfg_set_rq_size(srq_cfg, 3));
    OK(rpma_srq_new(peer, srq_cfg, &srq));
    for (int number = 0; number < 3; number++) {
        OK(rpma_srq_recv(srq, NULL, 0, 0, NUMBER(number)));
    }
    RETURNS(RPMA_E_PROVIDER, rpma_srq_recv(srq, NULL, 0, 0, NULL));
    OK(rpma_srq_get_rcq(srq, &rcq));
    CHECK(rcq == NULL);
    OK(rpma_srq_delete(&srq));
    DELETE_TWICE(rpma_srq_cfg_delete, srq_cfg);
    OK(rpma_peer_delete(&peer));
}

static void test_regions(void) {
    struct rpma_peer *peer = open_peer();
    struct rpma_mr_local *mr = NULL;
    struct rpma_mr_remote *remote = NULL;
    char *memory = allocate(8192);
    unsigned char descriptor[32];
    void *pointer = NULL;
    size_t size = 0;
    int types = -1;
    const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;

    INVALID(rpma_mr_reg(NULL, memory, 8192, usage, &mr));
    INVALID(rpma_mr_reg(peer, NULL, 8192, usage, &mr));
    INVALID(rpma_mr_reg(peer, memory, 0, usage, &mr));
    INVALID(rpma_mr_reg(peer, memory, 8192, 0, &mr));
    INVALID(rpma_mr_reg(peer, memory, 8192, 1 << 8, &mr));
    INVALID(rpma_mr_reg(peer, memory, 8192, -1, &mr));
    INVALID(rpma_mr_reg(peer, memory, 8192, usage, NULL));
    CHECK(mr == NULL);
    OK(rpma_mr_reg(peer, memory, 8192, usage, &mr));

    GETTER(rpma_mr_get_ptr, mr, &pointer);
    CHECK(pointer == memory);
    GETTER(rpma_mr_get_size, mr, &size);
    CHECK(size == 8192);
    GETTER(rpma_mr_get_descriptor_size, mr, &size);
    CHECK(size == 21);
    memset(descriptor, 0xee, sizeof(descriptor));
    GETTER(rpma_mr_get_descriptor, mr, descriptor);
    CHECK(memcmp(descriptor, &memory, 8) == 0);
    CHECK(descriptor[8] == 0 && descriptor[9] == 0x20);
    CHECK(descriptor[20] == usage);
    CHECK(descriptor[21] == 0xee);

    INVALID(rpma_mr_remote_from_descriptor(NULL, 21, &remote));
    INVALID(rpma_mr_remote_from_descriptor(descriptor, 20, &remote));
    INVALID(rpma_mr_remote_from_descriptor(descriptor, 21, NULL));
    descriptor[20] = 0;
    INVALID(rpma_mr_remote_from_descriptor(descriptor, 21, &remote));
    CHECK(remote == NULL);
    descriptor[20] = usage;
    OK(rpma_mr_remote_from_descriptor(descriptor, 24, &remote));
    GETTER(rpma_mr_remote_get_size, remote, &size);
    CHECK(size == 8192);
    GETTER(rpma_mr_remote_get_flush_type, remote, &types);
    CHECK(types == RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
    DELETE_TWICE(rpma_mr_remote_delete, remote);

    OK(rpma_mr_advise(mr, 0, 8192, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH));
    OK(rpma_mr_advise(mr, 100, 100, IBV_ADVISE_MR_ADVICE_PREFETCH, 0));
    OK(rpma_mr_advise(mr, 0, 1, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0));
    INVALID(rpma_mr_advise(NULL, 0, 1, IBV_ADVISE_MR_ADVICE_PREFETCH, 0));
    INVALID(rpma_mr_advise(mr, 1, 8192, IBV_ADVISE_MR_ADVICE_PREFETCH, 0));
    INVALID(rpma_mr_advise(mr, 0, 1, 99, 0));
    INVALID(rpma_mr_advise(mr, 0, 1, IBV_ADVISE_MR_ADVICE_PREFETCH, 1 << 7));

    /* Memory that is no file cannot be made persistent. With another usage it is registered without that. */
    OK(rpma_mr_dereg(&mr));
    RETURNS(RPMA_E_PROVIDER, rpma_mr_reg(peer, memory, 8192, RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, &mr));
    OK(rpma_mr_reg(peer, memory, 8192, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, &mr));
    OK(rpma_mr_get_descriptor(mr, descriptor));
    CHECK(descriptor[20] == RPMA_MR_USAGE_WRITE_SRC);

    /* Peers and operations only read this memory. */
    OK(rpma_mr_dereg(&mr));
    OK(rpma_mr_reg(peer, memory, 8192, RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_SEND, &mr));
    OK(rpma_mr_advise(mr, 0, 8192, IBV_ADVISE_MR_ADVICE_PREFETCH, 0));
    INVALID(rpma_mr_advise(mr, 0, 8192, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0));

    DELETE_TWICE(rpma_mr_dereg, mr);
    OK(rpma_peer_delete(&peer));
    free(memory);
}

static void test_null_connections(void) {
    struct rpma_cq *cq = NULL;
    struct rpma_conn *conn = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn_private_data data = {NULL, 0};
    struct ibv_wc wc;
    struct legacy_completion completion;
    enum rpma_conn_event event;
    uint32_t number;
    int fd, got;

    INVALID(rpma_ep_listen(NULL, ADDRESS, "0", NULL));
    INVALID(rpma_ep_shutdown(NULL));
    INVALID(rpma_ep_get_fd(NULL, &fd));
    INVALID(rpma_ep_next_conn_req(NULL, NULL, &request));
    INVALID(rpma_conn_req_new(NULL, ADDRESS, "7", NULL, &request));
    INVALID(rpma_conn_req_delete(NULL));
    OK(rpma_conn_req_delete(&request));
    INVALID(rpma_conn_req_connect(NULL, NULL, &conn));
    INVALID(rpma_conn_req_connect(&request, NULL, &conn));
    INVALID(rpma_conn_req_recv(NULL, NULL, 0, 0, NULL));
    INVALID(rpma_conn_req_get_private_data(NULL, &data));
    INVALID(rpma_conn_get_event_fd(NULL, &fd));
    INVALID(rpma_conn_next_event(NULL, &event));
    INVALID(rpma_conn_get_private_data(NULL, &data));
    INVALID(rpma_conn_apply_remote_peer_cfg(NULL, NULL));
    INVALID(rpma_conn_get_qp_num(NULL, &number));
    INVALID(rpma_conn_get_cq(NULL, &cq));
    INVALID(rpma_conn_get_rcq(NULL, &cq));
    INVALID(rpma_conn_get_compl_fd(NULL, &fd));
    INVALID(rpma_conn_wait(NULL, 0, &cq, NULL));
    INVALID(rpma_conn_disconnect(NULL));
    INVALID(rpma_conn_delete(NULL));
    OK(rpma_conn_delete(&conn));
    INVALID(rpma_cq_get_fd(NULL, &fd));
    INVALID(rpma_cq_wait(NULL));
    INVALID(rpma_cq_get_wc(NULL, 1, &wc, &got));
    INVALID(rpma_send(NULL, NULL, 0, 0, ALWAYS, NULL));
    INVALID(rpma_send_with_imm(NULL, NULL, 0, 0, ALWAYS, 1, NULL));
    INVALID(rpma_recv(NULL, NULL, 0, 0, NULL));
    INVALID(rpma_cq_get_completion(NULL, &completion));
    INVALID(rpma_conn_completion_get(NULL, &completion));
    INVALID(rpma_conn_completion_wait(NULL));
    INVALID(rpma_conn_get_completion_fd(NULL, &fd));
}

int main(void) {
    test_texts();
    test_log();
    test_contexts_and_peers();
    test_peer_cfg();
    test_conn_cfg_and_srq();
    test_regions();
    test_null_connections();
    return 0;
}
