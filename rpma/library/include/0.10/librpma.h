/*
 * The interface of librpma 0.10: <librpma.h> with `struct rpma_completion` in place of `struct ibv_wc`.
 *
 * A program that is linked with homespun's library gets the functions of librpma 1.0. So the event of
 * rpma_conn_next_event() may be 4, for a peer that has not answered. A program that was linked with librpma
 * 0.10 gets RPMA_E_UNKNOWN then, as it did there.
 */

#define LIBRPMA_0_10
#include "../librpma.h"
