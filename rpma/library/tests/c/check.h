/* What the programs of librpma 1.0 to 1.3 have in common: pair.h, and completions. */

#ifndef CHECK_H
#define CHECK_H

#include "pair.h"

/* The functions and the structure that only librpma 0.10 had. */
struct legacy_completion {
    void *op_context;
    int op;
    uint32_t byte_len;
    enum ibv_wc_status op_status;
    unsigned flags;
    uint32_t imm;
};
enum { LEGACY_WRITE = 1 };
int rpma_cq_get_completion(struct rpma_cq *cq, struct legacy_completion *cmpl);
int rpma_conn_completion_get(struct rpma_conn *conn, struct legacy_completion *cmpl);
int rpma_conn_completion_wait(struct rpma_conn *conn);
int rpma_conn_get_completion_fd(const struct rpma_conn *conn, int *fd);
int rpma_write_atomic(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
                      const struct rpma_mr_local *src, size_t src_offset, int flags, const void *op_context);

/* Waits for the next completion. */
static inline struct ibv_wc next_completion(struct rpma_cq *cq) {
    struct ibv_wc wc;
    memset(&wc, 0xee, sizeof(wc));
    OK(rpma_cq_wait(cq));
    OK(rpma_cq_get_wc(cq, 1, &wc, NULL));
    return wc;
}

/* Waits for the next completion, and checks all its fields. */
static inline void expect_fields(struct rpma_cq *cq, uint64_t context, enum ibv_wc_opcode opcode,
                                 uint32_t byte_len, uint32_t qp_num, unsigned flags, uint32_t imm) {
    struct ibv_wc wc = next_completion(cq);
    if (wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "operation %lu: %s\n", (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
        exit(1);
    }
    CHECK(wc.wr_id == context);
    CHECK(wc.opcode == opcode);
    CHECK(wc.byte_len == byte_len);
    CHECK(wc.qp_num == qp_num);
    CHECK(wc.wc_flags == flags);
    CHECK(wc.vendor_err == 0);
    CHECK(ntohl(wc.imm_data) == imm);
    CHECK(wc.src_qp == 0 && wc.pkey_index == 0 && wc.slid == 0 && wc.sl == 0 && wc.dlid_path_bits == 0);
}

/* The same for one without immediate data. */
static inline void expect_completion(struct rpma_cq *cq, uint64_t context, enum ibv_wc_opcode opcode,
                                     uint32_t byte_len, uint32_t qp_num) {
    expect_fields(cq, context, opcode, byte_len, qp_num, 0, 0);
}

static inline void expect_failure(struct rpma_cq *cq, uint64_t context, enum ibv_wc_status status,
                                  uint32_t qp_num) {
    struct ibv_wc wc = next_completion(cq);
    CHECK(wc.wr_id == context);
    CHECK(wc.qp_num == qp_num);
    if (wc.status != status) {
        fprintf(stderr, "%s instead of %s\n", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
        exit(1);
    }
}

#endif
