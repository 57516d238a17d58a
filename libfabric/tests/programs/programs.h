/* The table of the programs. */

#pragma once

#include "driver.h"

PROGRAM(openshmem);
PROGRAM(openshmem_contexts);
PROGRAM(gasnet);
PROGRAM(lci);
PROGRAM(rofi);
PROGRAM(mercury);
PROGRAM(cart);
HINTS(mercury_interface);
HINTS(mercury_rxm);
HINTS(mercury_sockets);
HINTS(cart_rxm);
HINTS(cart_sockets);
PROGRAM(ompi_mtl);
PROGRAM(ompi_btl);
PROGRAM(triggers);
HINTS(triggers_manual);
HINTS(triggers_polled);
HINTS(openshmem_manual);
HINTS(openshmem_polled);

static const struct program PROGRAMS[] = {
    { "openshmem", 3, NULL, "homespun", FI_VERSION(1, 5), openshmem_hints, run_openshmem },
    { "openshmem_manual", 3, NULL, "homespun", FI_VERSION(1, 5), openshmem_manual_hints, run_openshmem },
    { "openshmem_polled", 3, NULL, "homespun", FI_VERSION(1, 5), openshmem_polled_hints, run_openshmem },
    { "openshmem_contexts", 2, NULL, "homespun", FI_VERSION(1, 5), openshmem_contexts_hints, run_openshmem_contexts },
    { "gasnet", 2, NULL, NULL, FI_VERSION(1, 5), gasnet_hints, run_gasnet },
    { "lci", 2, NULL, NULL, FI_VERSION(1, 6), lci_hints, run_lci },
    { "rofi", 2, NULL, NULL, FI_VERSION(1, 17), rofi_hints, run_rofi },
    { "mercury", 2, "tcp", "tcp", FI_VERSION(1, 13), mercury_hints, run_mercury },
    { "mercury_interface", 2, "tcp", "tcp", FI_VERSION(1, 13), mercury_interface_hints, run_mercury },
    { "mercury_rxm", 2, "tcp", "tcp;ofi_rxm", FI_VERSION(1, 13), mercury_rxm_hints, run_mercury },
    { "mercury_sockets", 2, "sockets", "sockets", FI_VERSION(1, 13), mercury_sockets_hints, run_mercury },
    { "cart", 2, "tcp", "tcp", FI_VERSION(1, 13), cart_hints, run_cart },
    { "cart_rxm", 2, "tcp", "tcp;ofi_rxm", FI_VERSION(1, 13), cart_rxm_hints, run_cart },
    { "cart_sockets", 2, "sockets", "sockets", FI_VERSION(1, 13), cart_sockets_hints, run_cart },
    { "ompi_mtl", 2, NULL, NULL, FI_VERSION(1, 18), ompi_mtl_hints, run_ompi_mtl },
    { "ompi_btl", 2, NULL, NULL, FI_VERSION(1, 18), ompi_btl_hints, run_ompi_btl },
    { "triggers", 2, NULL, "homespun", FI_VERSION(1, 17), triggers_hints, run_triggers },
    { "triggers_manual", 2, NULL, "homespun", FI_VERSION(1, 17), triggers_manual_hints, run_triggers },
    { "triggers_polled", 2, NULL, "homespun", FI_VERSION(1, 17), triggers_polled_hints, run_triggers },
};
