// A program in C++, which has the names of the library only if the header says that they are of C.

#include <librpma.h>

int main() {
    struct ibv_context *context = nullptr;
    struct rpma_peer *peer = nullptr;
    enum rpma_conn_event event = RPMA_CONN_REJECTED;
    if (rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &context) != 0) {
        return 1;
    }
    if (rpma_peer_new(context, &peer) != 0 || rpma_peer_delete(&peer) != 0) {
        return 2;
    }
    if (*rpma_utils_conn_event_2str(event) == '\0' || *ibv_wc_status_str(IBV_WC_SUCCESS) == '\0') {
        return 3;
    }
    return 0;
}
