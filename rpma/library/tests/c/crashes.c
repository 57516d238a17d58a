/* A peer in a process of its own, which is killed during writes, flushes and a wait for a message. */

#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define SIZE 65536
#define OUTSTANDING 10

static const int ALWAYS = RPMA_F_COMPLETION_ALWAYS;

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
    struct rpma_mr_local *mr;
    char *memory;
};

/* The process of the peer: offers a file as memory, and waits until it is killed. */
static void serve(const char *path, int port_fd) {
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

static struct peer_process start_peer(const char *path) {
    struct peer_process process = {.memory = allocate(SIZE)};
    struct rpma_conn_cfg *cfg = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn_private_data data = {NULL, 0};
    struct rpma_peer_cfg *peer_cfg = NULL;
    char port[8];
    int pipe_fds[2];
    CHECK(pipe(pipe_fds) == 0);
    process.pid = fork();
    CHECK(process.pid >= 0);
    if (process.pid == 0) {
        alarm(120);
        serve(path, pipe_fds[1]);
    }
    close(pipe_fds[1]);
    CHECK(read(pipe_fds[0], port, sizeof(port)) == sizeof(port));
    close(pipe_fds[0]);

    process.peer = open_peer();
    OK(rpma_mr_reg(process.peer, process.memory, SIZE, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_RECV,
                   &process.mr));
    cfg = patient_cfg();
    OK(rpma_conn_cfg_set_cq_size(cfg, 2 * OUTSTANDING));
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
    OK(rpma_conn_get_cq(process.conn, &process.cq));
    OK(rpma_conn_get_qp_num(process.conn, &process.qp_num));
    return process;
}

static void kill_peer(const struct peer_process *process) {
    CHECK(kill(process->pid, SIGKILL) == 0);
}

static void close_peer(struct peer_process *process) {
    CHECK(waitpid(process->pid, NULL, 0) == process->pid);
    OK(rpma_conn_disconnect(process->conn));
    OK(rpma_conn_delete(&process->conn));
    OK(rpma_mr_remote_delete(&process->remote));
    OK(rpma_mr_dereg(&process->mr));
    OK(rpma_peer_delete(&process->peer));
    free(process->memory);
}

static int post(struct peer_process *process, bool is_flush, uintptr_t number) {
    if (is_flush) {
        return rpma_flush(process->conn, process->remote, 0, SIZE, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS,
                          NUMBER(number));
    }
    return rpma_write(process->conn, process->remote, 0, process->mr, 0, SIZE, ALWAYS, NUMBER(number));
}

/* Each operation ends once, in order, also if the peer is killed. */
static void test_crash_during(const char *path, bool is_flush) {
    struct peer_process process = start_peer(path);
    uintptr_t posted = 0, ended = 0;
    bool has_failed = false;
    while (posted < OUTSTANDING) {
        OK(post(&process, is_flush, ++posted));
    }
    while (ended < posted) {
        struct ibv_wc wc = next_completion(process.cq);
        CHECK(wc.wr_id == ++ended);
        CHECK(wc.qp_num == process.qp_num);
        if (wc.status != IBV_WC_SUCCESS) {
            CHECK(wc.status == IBV_WC_RETRY_EXC_ERR || wc.status == IBV_WC_WR_FLUSH_ERR);
            has_failed = true;
            continue;
        }
        CHECK(!has_failed);
        if (ended == 50) {
            kill_peer(&process);
        }
        if (post(&process, is_flush, posted + 1) == 0) {
            posted++;
        }
    }
    CHECK(ended >= 50);
    expect_event(process.conn, RPMA_CONN_CLOSED);
    RETURNS(RPMA_E_PROVIDER, post(&process, is_flush, 1));
    close_peer(&process);
}

static void *kill_when_readable(void *argument) {
    struct peer_process *process = argument;
    kill_peer(process);
    return NULL;
}

/* The end of the peer wakes a thread that waits for a message. */
static void test_crash_during_wait(const char *path) {
    struct peer_process process = start_peer(path);
    pthread_t thread;
    OK(rpma_recv(process.conn, process.mr, 0, 8, NUMBER(7)));
    CHECK(pthread_create(&thread, NULL, kill_when_readable, &process) == 0);
    expect_failure(process.cq, 7, IBV_WC_WR_FLUSH_ERR, process.qp_num);
    CHECK(pthread_join(thread, NULL) == 0);
    expect_event(process.conn, RPMA_CONN_CLOSED);
    close_peer(&process);
}

/* What a persistent flush has confirmed is in the file, although the peer is killed. */
static void test_durability(const char *path) {
    struct peer_process process = start_peer(path);
    char found[SIZE];
    for (size_t index = 0; index < SIZE; index++) {
        process.memory[index] = (char)(index * 7 + 1);
    }
    OK(rpma_write(process.conn, process.remote, 0, process.mr, 0, SIZE, RPMA_F_COMPLETION_ON_ERROR, NULL));
    OK(rpma_flush(process.conn, process.remote, 0, SIZE, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS, NUMBER(1)));
    expect_completion(process.cq, 1, IBV_WC_RDMA_READ, SIZE, process.qp_num);
    kill_peer(&process);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, found, SIZE) == SIZE);
    CHECK(memcmp(found, process.memory, SIZE) == 0);
    close(fd);
    expect_event(process.conn, RPMA_CONN_CLOSED);
    close_peer(&process);
}

/* Memory that is no file cannot be made durable. */
static void test_memory_without_a_file(void) {
    struct rpma_peer *peer = open_peer();
    struct rpma_mr_local *mr = NULL;
    char *memory = allocate(4096);
    RETURNS(RPMA_E_PROVIDER, rpma_mr_reg(peer, memory, 4096, RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, &mr));
    CHECK(mr == NULL);
    OK(rpma_peer_delete(&peer));
    free(memory);
}

int main(int argc, char **argv) {
    char path[4096];
    CHECK(argc == 2);
    snprintf(path, sizeof(path), "%s/persistent", argv[1]);
    alarm(300);
    test_crash_during(path, false);
    test_crash_during(path, true);
    test_crash_during_wait(path);
    test_durability(path);
    test_memory_without_a_file();
    return 0;
}
