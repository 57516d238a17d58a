/*
 * What homespun has beyond libfabric, for C: fi_open_ops(3) of a domain.
 *
 *     struct homespun_memory_ops *ops;
 *     struct fid_mr *mr;
 *     void *memory;
 *
 *     fi_open_ops(&domain->fid, HOMESPUN_MEMORY, 0, (void **) &ops, NULL);
 *     ops->reg(domain, 1 << 20, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, &memory, &mr, NULL);
 *     ...
 *     fi_close(&mr->fid);
 */

#ifndef HOMESPUN_H
#define HOMESPUN_H

#include <stddef.h>
#include <stdint.h>

#include <rdma/fi_domain.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The name of `struct homespun_memory_ops`. Other providers answer -FI_ENOSYS. */
#define HOMESPUN_MEMORY "homespun_memory"

struct homespun_memory_ops {
    /* How long the structure is. */
    size_t size;

    /*
     * Registers `len` bytes that homespun allocates, all zeros at first, and stores where they begin in `memory`. The other
     * parameters are those of fi_mr_reg(3). In the domains shm and auto, near peers map this memory when they have accessed
     * it once. From then on they write and read it by plain copies, without the owner's help and without a system call; in
     * the domain tcp, and for far peers, it is like any other. fi_close() of the region gives it back, after which the application must not use it.
     *
     * 0, or a negative error number as fi_mr_reg(3) has them, and -FI_ENOMEM or -FI_EMFILE.
     */
    int (*reg)(struct fid_domain *domain, size_t len, uint64_t access, uint64_t requested_key, uint64_t flags, void **memory,
               struct fid_mr **mr, void *context);
};

#ifdef __cplusplus
}
#endif

#endif
