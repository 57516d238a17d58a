/* The table of the programs. */

#pragma once

#include "driver.h"

PROGRAM(openshmem);
HINTS(mercury);
HINTS(mercury_interface);
HINTS(mercury_rxm);
HINTS(mercury_sockets);
HINTS(nixl);
HINTS(gasnet);
HINTS(lci);
HINTS(rofi);
HINTS(charm);
HINTS(libfabric_efa_rs);
HINTS(nccl);
HINTS(ompi_mtl);
HINTS(ompi_btl);
void run_hinted(struct fi_info *hints);
HINTS(dma_libfabric);
HINTS(openshmem_manual);
HINTS(openshmem_polled);

/* Programs that ask for the version that is installed. */
#define INSTALLED UINT32_MAX

static const struct program PROGRAMS[] = {
    { "openshmem", 3, NULL, "homespun", FI_VERSION(1, 5), openshmem_hints, run_openshmem },
    { "openshmem_manual", 3, NULL, "homespun", FI_VERSION(1, 5), openshmem_manual_hints, run_openshmem },
    { "openshmem_polled", 3, NULL, "homespun", FI_VERSION(1, 5), openshmem_polled_hints, run_openshmem },
    { "mercury", 2, "tcp", "tcp", FI_VERSION(1, 13), mercury_hints, run_hinted },
    { "mercury_interface", 2, "tcp", "tcp", FI_VERSION(1, 13), mercury_interface_hints, run_hinted },
    { "mercury_rxm", 2, "tcp", "tcp;ofi_rxm", FI_VERSION(1, 13), mercury_rxm_hints, run_hinted },
    { "mercury_sockets", 2, "sockets", "sockets", FI_VERSION(1, 13), mercury_sockets_hints, run_hinted },
    { "gasnet", 2, NULL, NULL, FI_VERSION(1, 5), gasnet_hints, run_hinted },
    { "lci", 2, NULL, NULL, FI_VERSION(1, 6), lci_hints, run_hinted },
    { "rofi", 2, NULL, NULL, FI_VERSION(1, 17), rofi_hints, run_hinted },
    { "charm", 2, NULL, NULL, FI_VERSION(1, 0), charm_hints, run_hinted },
    { "libfabric_efa_rs", 2, NULL, "homespun", INSTALLED, libfabric_efa_rs_hints, run_hinted },
    { "nccl", 2, NULL, NULL, FI_VERSION(1, 6), nccl_hints, run_hinted },
    { "nccl_tcp", 2, "tcp", NULL, FI_VERSION(1, 6), nccl_hints, run_hinted },
    { "ompi_mtl", 2, NULL, NULL, FI_VERSION(1, 18), ompi_mtl_hints, run_hinted },
    { "ompi_btl", 2, NULL, NULL, FI_VERSION(1, 18), ompi_btl_hints, run_hinted },
    { "nixl", 2, "tcp", NULL, FI_VERSION(1, 18), nixl_hints, run_hinted },
    { "nixl_sockets", 2, "sockets", NULL, FI_VERSION(1, 18), nixl_hints, run_hinted },
    { "dma_libfabric", 2, "tcp", "tcp", INSTALLED, dma_libfabric_hints, run_hinted },
};
