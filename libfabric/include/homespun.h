/*
 * homespun's extension of libfabric for C: memory that homespun allocates and that peers can map. An
 * application gets the operations of this extension by fi_open_ops(3) of a domain.
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
    /* The size of the structure in bytes. */
    size_t size;

    /*
     * Allocates `len` bytes of zeros, registers them, and stores their address in `memory`. The other
     * parameters are those of fi_mr_reg(3). In the domains shm and auto, a near peer (a process of the same
     * user on this host) maps this memory after its first access. From then on the peer writes and reads the
     * memory by plain copies, without the owner's help and without a system call. It also maps the memory to
     * receive messages from 16 KiB on that are sent from there, and copies them once. In the domain tcp, and for
     * far peers, the memory is like any other. fi_close() of the region frees the memory, so the application
     * must not use it afterwards.
     *
     * Returns 0, or a negative error number: those of fi_mr_reg(3), -FI_ENOMEM or -FI_EMFILE.
     */
    int (*reg)(struct fid_domain *domain, size_t len, uint64_t access, uint64_t requested_key, uint64_t flags, void **memory,
               struct fid_mr **mr, void *context);
};

#ifdef __cplusplus
}
#endif

#endif
