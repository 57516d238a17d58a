/* A peer in a process of its own, which offers a file as memory. */

#ifndef PEER_PROCESS_H
#define PEER_PROCESS_H

#include "check.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define SIZE 65536

/* What the peer tells by its private data: its configuration and its region. */
struct description {
    char config[1];
    char region[21];
};

struct peer_process {
    pid_t pid;
    struct rpma_peer *peer;
    struct rpma_conn *conn;
    struct rpma_cq *cq;
    uint32_t qp_num;
    struct rpma_mr_remote *remote;
    /* The address of the region in the process. */
    uint64_t address;
    struct rpma_mr_local *mr;
    char *memory;
    /* What `prepare` has returned in the process, or -1. */
    int descriptor;
};

/* The process of the peer: offers a file as memory, and waits until it is killed. */
static inline void serve(const char *path, int port_fd) {
    struct rpma_peer *peer = open_peer();
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    struct rpma_mr_local *mr = NULL;
    struct rpma_peer_cfg *cfg = NULL;
    struct description description;
    struct rpma_conn_private_data data = {&description, sizeof(description)};
    char port[8] = {0};
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0);
    void *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED);
    OK(rpma_mr_reg(peer, memory, SIZE,
                   RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT |
                       RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
                   &mr));
    OK(rpma_mr_get_descriptor(mr, description.region));
    OK(rpma_peer_cfg_new(&cfg));
    OK(rpma_peer_cfg_set_direct_write_to_pmem(cfg, true));
    OK(rpma_peer_cfg_get_descriptor(cfg, description.config));
    struct rpma_ep *ep = listen_somewhere(peer, port);
    CHECK(write(port_fd, port, sizeof(port)) == sizeof(port));
    OK(rpma_ep_next_conn_req(ep, NULL, &request));
    OK(rpma_conn_req_connect(&request, &data, &conn));
    expect_event(conn, RPMA_CONN_ESTABLISHED);
    for (;;) {
        pause();
    }
}

/* Passes a descriptor to the process at the other end of a socket. */
static inline void send_descriptor(int socket_fd, int descriptor) {
    char byte = 0;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    CHECK(sendmsg(socket_fd, &message, 0) == 1);
}

static inline int receive_descriptor(int socket_fd) {
    char byte;
    int descriptor = -1;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    CHECK(recvmsg(socket_fd, &message, 0) == 1);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    CHECK(header != NULL && header->cmsg_type == SCM_RIGHTS);
    memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    return descriptor;
}

/* Starts a process, and connects to it. The process calls `prepare` first, unless it is null, and passes on
   the descriptor that it returns. */
static inline struct peer_process start_peer(const char *path, int (*prepare)(void)) {
    struct peer_process process = {.memory = allocate(SIZE), .descriptor = -1};
    struct rpma_conn_cfg *cfg = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn_private_data data = {NULL, 0};
    struct rpma_peer_cfg *peer_cfg = NULL;
    char port[8];
    int sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    process.pid = fork();
    CHECK(process.pid >= 0);
    if (process.pid == 0) {
        alarm(120);
        close(sockets[0]);
        if (prepare) {
            int descriptor = prepare();
            send_descriptor(sockets[1], descriptor);
            close(descriptor);
        }
        serve(path, sockets[1]);
    }
    close(sockets[1]);
    if (prepare) {
        process.descriptor = receive_descriptor(sockets[0]);
    }
    CHECK(read(sockets[0], port, sizeof(port)) == sizeof(port));
    close(sockets[0]);

    process.peer = open_peer();
    OK(rpma_mr_reg(process.peer, process.memory, SIZE, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_RECV,
                   &process.mr));
    cfg = patient_cfg();
    OK(rpma_conn_cfg_set_cq_size(cfg, 20));
    OK(rpma_conn_req_new(process.peer, ADDRESS, port, cfg, &request));
    OK(rpma_conn_req_connect(&request, NULL, &process.conn));
    expect_event(process.conn, RPMA_CONN_ESTABLISHED);
    OK(rpma_conn_cfg_delete(&cfg));
    OK(rpma_conn_get_private_data(process.conn, &data));
    CHECK(data.len == sizeof(struct description));
    const struct description *description = data.ptr;
    OK(rpma_peer_cfg_from_descriptor(description->config, 1, &peer_cfg));
    OK(rpma_conn_apply_remote_peer_cfg(process.conn, peer_cfg));
    OK(rpma_peer_cfg_delete(&peer_cfg));
    OK(rpma_mr_remote_from_descriptor(description->region, 21, &process.remote));
    memcpy(&process.address, description->region, sizeof(process.address));
    OK(rpma_conn_get_cq(process.conn, &process.cq));
    OK(rpma_conn_get_qp_num(process.conn, &process.qp_num));
    return process;
}

static inline void kill_peer(const struct peer_process *process) {
    CHECK(kill(process->pid, SIGKILL) == 0);
}

static inline void close_peer(struct peer_process *process) {
    CHECK(waitpid(process->pid, NULL, 0) == process->pid);
    OK(rpma_conn_disconnect(process->conn));
    OK(rpma_conn_delete(&process->conn));
    OK(rpma_mr_remote_delete(&process->remote));
    OK(rpma_mr_dereg(&process->mr));
    OK(rpma_peer_delete(&process->peer));
    free(process->memory);
    if (process->descriptor >= 0) {
        close(process->descriptor);
    }
}

#endif
