/*
 * What <librpma.h> needs of libibverbs: completions, and a device that only homespun looks into.
 *
 * An installed <infiniband/verbs.h> is included, because programs may include it, too, and C has no second
 * declaration of a structure. Without one this file declares the part that programs of librpma use, with the
 * same names, values and layout.
 */

#ifndef LIBRPMA_VERBS_H
#define LIBRPMA_VERBS_H

#ifdef __has_include
#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
#define LIBRPMA_HAS_VERBS
#endif
#endif

#ifndef LIBRPMA_HAS_VERBS

/* Programs rely on these headers, which <infiniband/verbs.h> includes. */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A device. Programs pass it on, and read nothing from it. */
struct ibv_context;

/* How an operation has ended. */
enum ibv_wc_status {
    IBV_WC_SUCCESS = 0,
    IBV_WC_LOC_LEN_ERR = 1,    /* The message was longer than the memory of its receive. */
    IBV_WC_LOC_QP_OP_ERR = 2,
    IBV_WC_LOC_EEC_OP_ERR = 3,
    IBV_WC_LOC_PROT_ERR = 4,
    IBV_WC_WR_FLUSH_ERR = 5,   /* The connection has ended before. */
    IBV_WC_MW_BIND_ERR = 6,
    IBV_WC_BAD_RESP_ERR = 7,
    IBV_WC_LOC_ACCESS_ERR = 8,
    IBV_WC_REM_INV_REQ_ERR = 9,
    IBV_WC_REM_ACCESS_ERR = 10, /* The peer's region does not allow the access. */
    IBV_WC_REM_OP_ERR = 11,
    IBV_WC_RETRY_EXC_ERR = 12,  /* The peer does not answer. */
    IBV_WC_RNR_RETRY_EXC_ERR = 13,
    IBV_WC_LOC_RDD_VIOL_ERR = 14,
    IBV_WC_REM_INV_RD_REQ_ERR = 15,
    IBV_WC_REM_ABORT_ERR = 16,
    IBV_WC_INV_EECN_ERR = 17,
    IBV_WC_INV_EEC_STATE_ERR = 18,
    IBV_WC_FATAL_ERR = 19,
    IBV_WC_RESP_TIMEOUT_ERR = 20,
    IBV_WC_GENERAL_ERR = 21,
    IBV_WC_TM_ERR = 22,
    IBV_WC_TM_RNDV_INCOMPLETE = 23
};

/* Which operation has ended. */
enum ibv_wc_opcode {
    IBV_WC_SEND = 0,
    IBV_WC_RDMA_WRITE = 1, /* An atomic write, too. */
    IBV_WC_RDMA_READ = 2,  /* A flush, too. */
    IBV_WC_RECV = 128,
    IBV_WC_RECV_RDMA_WITH_IMM = 129
};

/* What a completion has. */
enum ibv_wc_flags {
    IBV_WC_WITH_IMM = 2
};

/* A completion. If the status is no success, only it, `wr_id` and `qp_num` have a meaning. */
struct ibv_wc {
    uint64_t wr_id; /* The `op_context` of the operation. */
    enum ibv_wc_status status;
    enum ibv_wc_opcode opcode;
    uint32_t vendor_err;
    uint32_t byte_len;
    uint32_t imm_data; /* In network byte order. */
    uint32_t qp_num;
    uint32_t src_qp;
    unsigned int wc_flags;
    uint16_t pkey_index;
    uint16_t slid;
    uint8_t sl;
    uint8_t dlid_path_bits;
};

/* The arguments of rpma_mr_advise(). */
#define IBV_ADVISE_MR_ADVICE_PREFETCH 0
#define IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE 1
#define IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT 2
#define IBV_ADVISE_MR_FLAG_FLUSH 1

/* Describes a status. homespun's library has this function of libibverbs. */
const char *ibv_wc_status_str(enum ibv_wc_status status);

#ifdef __cplusplus
}
#endif

#endif
#endif
