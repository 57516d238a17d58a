/*
 * The interface of librpma 1.0 to 1.3, for programs that run over homespun's librpma.so.0: docs/librpma.md.
 * 0.10/librpma.h makes it that of 0.10.
 *
 * Functions return 0, or one of the numbers RPMA_E_*. Those that make an object store it at `*..._ptr`, and
 * those that delete one store NULL there.
 */

#ifndef LIBRPMA_H
#define LIBRPMA_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "librpma_verbs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Errors. */

#define RPMA_E_UNKNOWN (-100000)
#define RPMA_E_NOSUPP (-100001)        /* The peer or the region does not support the operation. */
#define RPMA_E_PROVIDER (-100002)      /* The system or the connection has failed. */
#define RPMA_E_NOMEM (-100003)
#define RPMA_E_INVAL (-100004)         /* An argument is invalid. */
#define RPMA_E_NO_COMPLETION (-100005) /* The queue is empty. */
#define RPMA_E_NO_EVENT (-100006)      /* There is no event or request. */
#define RPMA_E_AGAIN (-100007)
#ifndef LIBRPMA_0_10
#define RPMA_E_SHARED_CHANNEL (-100008)  /* The queues share a channel: use rpma_conn_wait(). */
#define RPMA_E_NOT_SHARED_CHNL (-100009) /* The queues share no channel: use rpma_cq_wait(). */
#endif

/* Describes an error in English. Never NULL. */
const char *rpma_err_2str(int ret);

/* Devices. homespun has one for each family of addresses. */

enum rpma_util_ibv_context_type {
    RPMA_UTIL_IBV_CONTEXT_LOCAL, /* The address is of this host. */
    RPMA_UTIL_IBV_CONTEXT_REMOTE /* The address is of the peer. */
};

int rpma_utils_get_ibv_context(const char *addr, enum rpma_util_ibv_context_type type,
                               struct ibv_context **ibv_ctx_ptr);
int rpma_utils_ibv_context_is_odp_capable(struct ibv_context *ibv_ctx, int *is_odp_capable);

/* Peers: what connections, endpoints and memory regions belong to. */

struct rpma_peer;

int rpma_peer_new(struct ibv_context *ibv_ctx, struct rpma_peer **peer_ptr);
int rpma_peer_delete(struct rpma_peer **peer_ptr);

/* What one side tells the other about its memory. The descriptor has the bytes to send. */

struct rpma_peer_cfg;

int rpma_peer_cfg_new(struct rpma_peer_cfg **pcfg_ptr);
int rpma_peer_cfg_delete(struct rpma_peer_cfg **pcfg_ptr);
/* A peer that supports it takes persistent flushes. */
int rpma_peer_cfg_set_direct_write_to_pmem(struct rpma_peer_cfg *pcfg, bool supported);
int rpma_peer_cfg_get_direct_write_to_pmem(const struct rpma_peer_cfg *pcfg, bool *supported);
int rpma_peer_cfg_get_descriptor_size(const struct rpma_peer_cfg *pcfg, size_t *desc_size);
int rpma_peer_cfg_get_descriptor(const struct rpma_peer_cfg *pcfg, void *desc);
int rpma_peer_cfg_from_descriptor(const void *desc, size_t desc_size, struct rpma_peer_cfg **pcfg_ptr);

/* Memory regions. */

struct rpma_mr_local;
struct rpma_mr_remote;

/* What a region is registered for. */
#define RPMA_MR_USAGE_READ_SRC (1 << 0)
#define RPMA_MR_USAGE_READ_DST (1 << 1)
#define RPMA_MR_USAGE_WRITE_SRC (1 << 2)
#define RPMA_MR_USAGE_WRITE_DST (1 << 3)
#define RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY (1 << 4)
#define RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT (1 << 5)
#define RPMA_MR_USAGE_SEND (1 << 6)
#define RPMA_MR_USAGE_RECV (1 << 7)

int rpma_mr_reg(struct rpma_peer *peer, void *ptr, size_t size, int usage, struct rpma_mr_local **mr_ptr);
int rpma_mr_dereg(struct rpma_mr_local **mr_ptr);
int rpma_mr_get_ptr(const struct rpma_mr_local *mr, void **ptr);
int rpma_mr_get_size(const struct rpma_mr_local *mr, size_t *size);
int rpma_mr_advise(struct rpma_mr_local *mr, size_t offset, size_t len, int advice, uint32_t flags);
/* The descriptor has the bytes from which the other side makes its view of the region. */
int rpma_mr_get_descriptor_size(const struct rpma_mr_local *mr, size_t *desc_size);
int rpma_mr_get_descriptor(const struct rpma_mr_local *mr, void *desc);
int rpma_mr_remote_from_descriptor(const void *desc, size_t desc_size, struct rpma_mr_remote **mr_ptr);
int rpma_mr_remote_delete(struct rpma_mr_remote **mr_ptr);
int rpma_mr_remote_get_size(const struct rpma_mr_remote *mr, size_t *size);
/* Returns the bits RPMA_MR_USAGE_FLUSH_TYPE_* of the region. */
int rpma_mr_remote_get_flush_type(const struct rpma_mr_remote *mr, int *flush_type);

/* Configurations of connections. NULL in place of one means the defaults. */

struct rpma_conn_cfg;

#define RPMA_DEFAULT_TIMEOUT_MS 1000

int rpma_conn_cfg_new(struct rpma_conn_cfg **cfg_ptr);
int rpma_conn_cfg_delete(struct rpma_conn_cfg **cfg_ptr);
/* How long a request waits for the answer of the peer. */
int rpma_conn_cfg_set_timeout(struct rpma_conn_cfg *cfg, int timeout_ms);
int rpma_conn_cfg_get_timeout(const struct rpma_conn_cfg *cfg, int *timeout_ms);
/* How many completions the main queue has room for: 10. */
int rpma_conn_cfg_set_cq_size(struct rpma_conn_cfg *cfg, uint32_t cq_size);
int rpma_conn_cfg_get_cq_size(const struct rpma_conn_cfg *cfg, uint32_t *cq_size);
/* The same for the queue of receives. With 0, the default, there is none, and the main queue has them. */
int rpma_conn_cfg_set_rcq_size(struct rpma_conn_cfg *cfg, uint32_t rcq_size);
int rpma_conn_cfg_get_rcq_size(const struct rpma_conn_cfg *cfg, uint32_t *rcq_size);
/* How many operations may be outstanding, but receives: 10. */
int rpma_conn_cfg_set_sq_size(struct rpma_conn_cfg *cfg, uint32_t sq_size);
int rpma_conn_cfg_get_sq_size(const struct rpma_conn_cfg *cfg, uint32_t *sq_size);
/* How many receives may be posted: 10. */
int rpma_conn_cfg_set_rq_size(struct rpma_conn_cfg *cfg, uint32_t rq_size);
int rpma_conn_cfg_get_rq_size(const struct rpma_conn_cfg *cfg, uint32_t *rq_size);
#ifndef LIBRPMA_0_10
struct rpma_srq;
/* Whether both queues have one descriptor, for rpma_conn_wait(). */
int rpma_conn_cfg_set_compl_channel(struct rpma_conn_cfg *cfg, bool shared);
int rpma_conn_cfg_get_compl_channel(const struct rpma_conn_cfg *cfg, bool *shared);
/* The queue whose receives the connections share. */
int rpma_conn_cfg_set_srq(struct rpma_conn_cfg *cfg, struct rpma_srq *srq);
int rpma_conn_cfg_get_srq(const struct rpma_conn_cfg *cfg, struct rpma_srq **srq_ptr);
#endif

/* Endpoints, which listen for requests. */

struct rpma_ep;
struct rpma_conn_req;

int rpma_ep_listen(struct rpma_peer *peer, const char *addr, const char *port, struct rpma_ep **ep_ptr);
int rpma_ep_shutdown(struct rpma_ep **ep_ptr);
/* The descriptor is readable while there is a request. */
int rpma_ep_get_fd(const struct rpma_ep *ep, int *fd);
/* Waits for a request, unless the descriptor is non-blocking. */
int rpma_ep_next_conn_req(struct rpma_ep *ep, const struct rpma_conn_cfg *cfg,
                          struct rpma_conn_req **req_ptr);

/* Requests for connections, of this side or of the other. */

struct rpma_conn;

/* What one side says with its request, or with its answer. */
struct rpma_conn_private_data {
    void *ptr;
    uint8_t len;
};

int rpma_conn_req_new(struct rpma_peer *peer, const char *addr, const char *port,
                      const struct rpma_conn_cfg *cfg, struct rpma_conn_req **req_ptr);
/* Rejects a request of the other side. */
int rpma_conn_req_delete(struct rpma_conn_req **req_ptr);
/* Sends a request, or accepts one of the other side. Consumes it, even if it fails. */
int rpma_conn_req_connect(struct rpma_conn_req **req_ptr, const struct rpma_conn_private_data *pdata,
                          struct rpma_conn **conn_ptr);
/* Posts a receive before there is a connection. */
int rpma_conn_req_recv(struct rpma_conn_req *req, struct rpma_mr_local *dst, size_t offset, size_t len,
                       const void *op_context);
int rpma_conn_req_get_private_data(const struct rpma_conn_req *req, struct rpma_conn_private_data *pdata);

/* Connections. */

struct rpma_cq;

enum rpma_conn_event {
    RPMA_CONN_UNDEFINED = -1,
    RPMA_CONN_ESTABLISHED, /* There is a connection. */
    RPMA_CONN_CLOSED,      /* It has ended. */
    RPMA_CONN_LOST,        /* It has broken. */
#ifdef LIBRPMA_0_10
    RPMA_CONN_REJECTED     /* Nothing listens, or the peer has rejected the request. */
#else
    RPMA_CONN_REJECTED,    /* Nothing listens, or the peer has rejected the request. */
    RPMA_CONN_UNREACHABLE  /* The peer has not answered in time. Since 0.14. */
#endif
};

int rpma_conn_get_event_fd(const struct rpma_conn *conn, int *fd);
/* Waits for an event, unless the descriptor is non-blocking. */
int rpma_conn_next_event(struct rpma_conn *conn, enum rpma_conn_event *event);
const char *rpma_utils_conn_event_2str(enum rpma_conn_event conn_event);
/* Returns what the other side has said. It is there as long as the connection. */
int rpma_conn_get_private_data(const struct rpma_conn *conn, struct rpma_conn_private_data *pdata);
int rpma_conn_apply_remote_peer_cfg(struct rpma_conn *conn, const struct rpma_peer_cfg *pcfg);
/* Returns the number that the completions of the connection have. */
int rpma_conn_get_qp_num(const struct rpma_conn *conn, uint32_t *qp_num);
int rpma_conn_get_cq(const struct rpma_conn *conn, struct rpma_cq **cq_ptr);
/* Returns the queue of receives, NULL if there is none. */
int rpma_conn_get_rcq(const struct rpma_conn *conn, struct rpma_cq **rcq_ptr);
int rpma_conn_disconnect(struct rpma_conn *conn);
int rpma_conn_delete(struct rpma_conn **conn_ptr);

/* Operations. Each has a number `op_context` of the application, which its completion repeats. */

#define RPMA_F_COMPLETION_ON_ERROR (1 << 0)                              /* A completion for a failure. */
#define RPMA_F_COMPLETION_ALWAYS ((1 << 1) | RPMA_F_COMPLETION_ON_ERROR) /* A completion for each. */

#define RPMA_ATOMIC_WRITE_ALIGNMENT 8

enum rpma_flush_type {
    RPMA_FLUSH_TYPE_PERSISTENT, /* Earlier writes survive a failure of the power. */
    RPMA_FLUSH_TYPE_VISIBILITY  /* Earlier writes are visible to the peer. */
};

int rpma_read(struct rpma_conn *conn, struct rpma_mr_local *dst, size_t dst_offset,
              const struct rpma_mr_remote *src, size_t src_offset, size_t len, int flags,
              const void *op_context);
int rpma_write(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
               const struct rpma_mr_local *src, size_t src_offset, size_t len, int flags,
               const void *op_context);
/* Ends a receive of the peer with the number `imm`, which is in host byte order here. */
int rpma_write_with_imm(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
                        const struct rpma_mr_local *src, size_t src_offset, size_t len, int flags,
                        uint32_t imm, const void *op_context);
int rpma_flush(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset, size_t len,
               enum rpma_flush_type type, int flags, const void *op_context);
int rpma_send(struct rpma_conn *conn, const struct rpma_mr_local *src, size_t offset, size_t len, int flags,
              const void *op_context);
int rpma_send_with_imm(struct rpma_conn *conn, const struct rpma_mr_local *src, size_t offset, size_t len,
                       int flags, uint32_t imm, const void *op_context);
int rpma_recv(struct rpma_conn *conn, struct rpma_mr_local *dst, size_t offset, size_t len,
              const void *op_context);

/* Completion queues. */

/* The descriptor is readable while there is a completion. */
int rpma_cq_get_fd(const struct rpma_cq *cq, int *fd);
/* Waits for a completion, unless the descriptor is non-blocking. */
int rpma_cq_wait(struct rpma_cq *cq);

#ifdef LIBRPMA_0_10

/* Writes 8 bytes, which the peer sees all at once. */
int rpma_write_atomic(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
                      const struct rpma_mr_local *src, size_t src_offset, int flags, const void *op_context);

enum rpma_op {
    RPMA_OP_READ,  /* A flush, too. */
    RPMA_OP_WRITE,
    RPMA_OP_FLUSH, /* The library does not return it. */
    RPMA_OP_SEND,
    RPMA_OP_RECV,
    RPMA_OP_RECV_RDMA_WITH_IMM
};

struct rpma_completion {
    void *op_context;
    enum rpma_op op;
    uint32_t byte_len;
    enum ibv_wc_status op_status;
    unsigned flags; /* IBV_WC_WITH_IMM if there is an `imm`. */
    uint32_t imm;   /* In host byte order. */
};

int rpma_cq_get_completion(struct rpma_cq *cq, struct rpma_completion *cmpl);

/* The same for the main queue of a connection. */
int rpma_conn_get_completion_fd(const struct rpma_conn *conn, int *fd);
int rpma_conn_completion_wait(struct rpma_conn *conn);
int rpma_conn_completion_get(struct rpma_conn *conn, struct rpma_completion *cmpl);

#else

/* Writes 8 bytes, which the peer sees all at once. */
int rpma_atomic_write(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
                      const char src[8], int flags, const void *op_context);

/* Reads up to `num_entries` completions. `num_entries_got` may be NULL for one. */
int rpma_cq_get_wc(struct rpma_cq *cq, int num_entries, struct ibv_wc *wc, int *num_entries_got);

/* Both queues of a connection, if they share a channel: rpma_conn_cfg_set_compl_channel(). */
int rpma_conn_get_compl_fd(const struct rpma_conn *conn, int *fd);
/* Waits for a completion, and returns its queue. `flags` has no meaning yet; `is_rcq` may be NULL. */
int rpma_conn_wait(struct rpma_conn *conn, int flags, struct rpma_cq **cq, bool *is_rcq);

/* Shared receive queues: each connection of a configuration takes its receives from one. */

struct rpma_srq_cfg;

int rpma_srq_cfg_new(struct rpma_srq_cfg **cfg_ptr);
int rpma_srq_cfg_delete(struct rpma_srq_cfg **cfg_ptr);
/* How many receives may be posted: 20. */
int rpma_srq_cfg_set_rq_size(struct rpma_srq_cfg *cfg, uint32_t rq_size);
int rpma_srq_cfg_get_rq_size(const struct rpma_srq_cfg *cfg, uint32_t *rq_size);
/* How many of their completions there is room for: 20. With 0 the connections have them. */
int rpma_srq_cfg_set_rcq_size(struct rpma_srq_cfg *cfg, uint32_t rcq_size);
int rpma_srq_cfg_get_rcq_size(const struct rpma_srq_cfg *cfg, uint32_t *rcq_size);
int rpma_srq_new(struct rpma_peer *peer, struct rpma_srq_cfg *cfg, struct rpma_srq **srq_ptr);
int rpma_srq_delete(struct rpma_srq **srq_ptr);
int rpma_srq_recv(struct rpma_srq *srq, struct rpma_mr_local *dst, size_t offset, size_t len,
                  const void *op_context);
/* Returns the queue of the completions, NULL if there is none. */
int rpma_srq_get_rcq(const struct rpma_srq *srq, struct rpma_cq **rcq_ptr);

#endif

/* An argument that no function has taken. */
#define RPMA_W_WAIT_FOR_COMPLETION (1)

/* Messages. */

enum rpma_log_level {
    RPMA_LOG_DISABLED = -1,
    RPMA_LOG_LEVEL_FATAL,
    RPMA_LOG_LEVEL_ERROR,
    RPMA_LOG_LEVEL_WARNING,
    RPMA_LOG_LEVEL_NOTICE,
    RPMA_LOG_LEVEL_INFO,
    RPMA_LOG_LEVEL_DEBUG
};

enum rpma_log_threshold {
    RPMA_LOG_THRESHOLD,     /* Of the function of the application, or of syslog. */
    RPMA_LOG_THRESHOLD_AUX, /* Of standard error. */
    RPMA_LOG_THRESHOLD_MAX  /* The number of thresholds. */
};

typedef void rpma_log_function(enum rpma_log_level level, const char *file_name, const int line_no,
                               const char *function_name, const char *message_format, ...);

#define RPMA_LOG_USE_DEFAULT_FUNCTION (NULL)

int rpma_log_set_threshold(enum rpma_log_threshold threshold, enum rpma_log_level level);
int rpma_log_get_threshold(enum rpma_log_threshold threshold, enum rpma_log_level *level);
int rpma_log_set_function(rpma_log_function *log_function);

#ifdef __cplusplus
}
#endif

#endif
