/* Checks, peers and connected pairs, with what the header of each version has. */

#ifndef PAIR_H
#define PAIR_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <librpma.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDRESS "127.0.0.1"
#define PATIENCE_MS 60000

/* Ends the program unless a condition holds. */
#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

/* Ends the program unless a call returns this number. */
#define RETURNS(expected, call)                                                           \
    do {                                                                                  \
        int returned = (call);                                                            \
        if (returned != (expected)) {                                                     \
            fprintf(stderr, "%s:%d: %s returned %d (%s)\n", __FILE__, __LINE__, #call,    \
                    returned, rpma_err_2str(returned));                                   \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#define OK(call) RETURNS(0, call)
#define INVALID(call) RETURNS(RPMA_E_INVAL, call)

static inline struct rpma_peer *open_peer(void) {
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    OK(rpma_utils_get_ibv_context(ADDRESS, RPMA_UTIL_IBV_CONTEXT_LOCAL, &context));
    OK(rpma_peer_new(context, &peer));
    return peer;
}

/* Finds a port that is free now. */
static inline void find_port(char port[8]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK(bind(fd, (struct sockaddr *)&address, length) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    close(fd);
    snprintf(port, 8, "%d", ntohs(address.sin_port));
}

/* Listens at a port that was free. */
static inline struct rpma_ep *listen_somewhere(struct rpma_peer *peer, char port[8]) {
    struct rpma_ep *ep = NULL;
    for (int attempt = 0; attempt < 20; attempt++) {
        find_port(port);
        if (rpma_ep_listen(peer, ADDRESS, port, &ep) == 0) {
            return ep;
        }
    }
    CHECK(!"a port to listen at");
    return NULL;
}

/* Waits until a descriptor is readable. */
static inline void wait_readable(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    CHECK(poll(&poll_fd, 1, PATIENCE_MS) == 1);
}

static inline int is_readable(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

static inline void set_nonblocking(int fd) {
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
}

static inline void expect_event(struct rpma_conn *conn, enum rpma_conn_event expected) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    int fd = -1;
    OK(rpma_conn_get_event_fd(conn, &fd));
    wait_readable(fd);
    OK(rpma_conn_next_event(conn, &event));
    if (event != expected) {
        fprintf(stderr, "%s instead of %s\n", rpma_utils_conn_event_2str(event),
                rpma_utils_conn_event_2str(expected));
        exit(1);
    }
}

/* A configuration whose requests wait as long as a program does. */
static inline struct rpma_conn_cfg *patient_cfg(void) {
    struct rpma_conn_cfg *cfg = NULL;
    OK(rpma_conn_cfg_new(&cfg));
    OK(rpma_conn_cfg_set_timeout(cfg, PATIENCE_MS));
    return cfg;
}

/* A listening endpoint, and the configuration of connections at it. */
struct listener {
    struct rpma_peer *peer;
    struct rpma_ep *ep;
    struct rpma_conn_cfg *cfg;
    char port[8];
};

static inline struct listener open_listener(void) {
    struct listener listener = {.peer = open_peer(), .cfg = patient_cfg()};
    listener.ep = listen_somewhere(listener.peer, listener.port);
    return listener;
}

static inline void close_listener(struct listener *listener) {
    OK(rpma_conn_cfg_delete(&listener->cfg));
    OK(rpma_ep_shutdown(&listener->ep));
    OK(rpma_peer_delete(&listener->peer));
    CHECK(listener->ep == NULL && listener->peer == NULL);
}

/* Requests a connection to a listener. */
static inline struct rpma_conn *request_connection(const struct listener *listener) {
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *client = NULL;
    OK(rpma_conn_req_new(listener->peer, ADDRESS, listener->port, listener->cfg, &request));
    OK(rpma_conn_req_connect(&request, NULL, &client));
    CHECK(request == NULL);
    return client;
}

static inline void *allocate(size_t size) {
    void *memory = NULL;
    CHECK(posix_memalign(&memory, 4096, size) == 0);
    memset(memory, 0, size);
    return memory;
}

#define USAGE_ALL_VOLATILE                                                                      \
    (RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC |                \
     RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_SEND |       \
     RPMA_MR_USAGE_RECV)
#define IMM 0x01020304u

enum { ALWAYS = RPMA_F_COMPLETION_ALWAYS, ON_ERROR = RPMA_F_COMPLETION_ON_ERROR };

/* Memory, its region, and the peer's view of the region. */
struct memory {
    char *bytes;
    struct rpma_mr_local *mr;
    struct rpma_mr_remote *remote;
};

static inline struct memory open_memory(struct rpma_peer *peer) {
    struct memory memory = {.bytes = allocate(4096)};
    char descriptor[21];
    OK(rpma_mr_reg(peer, memory.bytes, 4096, USAGE_ALL_VOLATILE, &memory.mr));
    OK(rpma_mr_get_descriptor(memory.mr, descriptor));
    OK(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &memory.remote));
    return memory;
}

static inline void close_memory(struct memory *memory) {
    OK(rpma_mr_remote_delete(&memory->remote));
    OK(rpma_mr_dereg(&memory->mr));
    free(memory->bytes);
}

/* Two connections of this process, with each other, and memory for both sides. */
struct pair {
    struct listener listener;
    struct rpma_conn *client;
    struct rpma_conn *server;
    struct rpma_cq *client_cq;
    struct rpma_cq *server_cq;
    uint32_t client_qp;
    uint32_t server_qp;
    struct memory near;
    struct memory far;
};

/* Connects a pair at a listener, which it closes at its end. */
static inline struct pair connect_pair(struct listener listener) {
    struct pair pair = {.listener = listener, .client = request_connection(&listener)};
    struct rpma_conn_req *request = NULL;
    OK(rpma_ep_next_conn_req(listener.ep, listener.cfg, &request));
    OK(rpma_conn_req_connect(&request, NULL, &pair.server));
    expect_event(pair.server, RPMA_CONN_ESTABLISHED);
    expect_event(pair.client, RPMA_CONN_ESTABLISHED);
    OK(rpma_conn_get_cq(pair.client, &pair.client_cq));
    OK(rpma_conn_get_cq(pair.server, &pair.server_cq));
    OK(rpma_conn_get_qp_num(pair.client, &pair.client_qp));
    OK(rpma_conn_get_qp_num(pair.server, &pair.server_qp));
    CHECK(pair.client_qp != pair.server_qp);
    pair.near = open_memory(listener.peer);
    pair.far = open_memory(listener.peer);
    return pair;
}

static inline struct pair open_pair(void) {
    return connect_pair(open_listener());
}

static inline void close_pair(struct pair *pair) {
    OK(rpma_conn_disconnect(pair->client));
    expect_event(pair->client, RPMA_CONN_CLOSED);
    expect_event(pair->server, RPMA_CONN_CLOSED);
    OK(rpma_conn_disconnect(pair->server));
    OK(rpma_conn_disconnect(pair->client));
    OK(rpma_conn_delete(&pair->client));
    OK(rpma_conn_delete(&pair->server));
    CHECK(pair->client == NULL && pair->server == NULL);
    close_listener(&pair->listener);
    close_memory(&pair->near);
    close_memory(&pair->far);
}

#define NUMBER(context) ((const void *)(uintptr_t)(context))

#endif
