/* A persistent flush makes its range durable before it completes; a flush for visibility does not.
 *
 * The page cache outlives a process that is killed, so the content of a file does not tell the two apart.
 * The peer therefore runs with a seccomp filter that stops it at each msync(2), until this process has looked
 * at the arguments and let the call go on, or fail. */

#include "peer_process.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define PAGE 4096

/* How long a completion has time to come that must not come. */
#define PAUSE_MS 50

static const int ALWAYS = RPMA_F_COMPLETION_ALWAYS;
static const int ON_ERROR = RPMA_F_COMPLETION_ON_ERROR;

/* A call of msync(2) that has been stopped. The kernel's structure may be longer than that of the header. */
union stopped_call {
    struct seccomp_notif call;
    char room[512];
};

/* Stops the calls of msync(2) of this thread, and of those that it starts. Returns the descriptor by which
   another process sees the calls. */
static int stop_at_msync(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_msync, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    long descriptor =
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    CHECK(descriptor >= 0);
    return (int)descriptor;
}

/* Waits until the peer has called msync(2) for exactly the pages of this range. Returns the call's number. */
static uint64_t expect_msync(const struct peer_process *peer, size_t offset, size_t len) {
    union stopped_call stopped;
    memset(&stopped, 0, sizeof(stopped));
    wait_readable(peer->descriptor);
    CHECK(ioctl(peer->descriptor, SECCOMP_IOCTL_NOTIF_RECV, &stopped) == 0);
    const struct seccomp_data *data = &stopped.call.data;
    CHECK(data->nr == SYS_msync);
    CHECK(data->args[0] % PAGE == 0);
    CHECK(data->args[0] <= peer->address + offset && peer->address + offset - data->args[0] < PAGE);
    CHECK(data->args[0] + data->args[1] == peer->address + offset + len);
    CHECK((int)data->args[2] == MS_SYNC);
    return stopped.call.id;
}

static void answer(const struct peer_process *peer, struct seccomp_notif_resp *response) {
    union {
        struct seccomp_notif_resp response;
        char room[512];
    } padded;
    memset(&padded, 0, sizeof(padded));
    padded.response = *response;
    CHECK(ioctl(peer->descriptor, SECCOMP_IOCTL_NOTIF_SEND, &padded) == 0);
}

static void let_msync_go_on(const struct peer_process *peer, uint64_t id) {
    answer(peer, &(struct seccomp_notif_resp){.id = id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE});
}

static void let_msync_fail(const struct peer_process *peer, uint64_t id, int error) {
    answer(peer, &(struct seccomp_notif_resp){.id = id, .error = -error});
}

/* Checks that no completion comes. */
static void expect_nothing_yet(struct rpma_cq *cq) {
    struct pollfd poll_fd = {.events = POLLIN};
    struct ibv_wc wc;
    OK(rpma_cq_get_fd(cq, &poll_fd.fd));
    RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(cq, 1, &wc, NULL));
    CHECK(poll(&poll_fd, 1, PAUSE_MS) == 0);
}

static void fill(struct peer_process *peer, char first) {
    for (size_t index = 0; index < SIZE; index++) {
        peer->memory[index] = (char)(index * 7 + (unsigned char)first);
    }
    OK(rpma_write(peer->conn, peer->remote, 0, peer->mr, 0, SIZE, ON_ERROR, NULL));
}

static void expect_file(const char *path, const struct peer_process *peer) {
    char found[SIZE];
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, found, SIZE) == SIZE);
    CHECK(memcmp(found, peer->memory, SIZE) == 0);
    close(fd);
}

static void close_killed_peer(struct peer_process *peer) {
    expect_event(peer->conn, RPMA_CONN_CLOSED);
    close_peer(peer);
}

/* The flush completes once the peer's msync has returned, and not before. Then the file has the bytes, also
   if the peer is killed at once. */
static void test_persistent_flush(const char *path, size_t offset, size_t len) {
    struct peer_process peer = start_peer(path, stop_at_msync);
    fill(&peer, 1);
    OK(rpma_flush(peer.conn, peer.remote, offset, len, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS, NUMBER(1)));
    uint64_t call = expect_msync(&peer, offset, len);
    expect_nothing_yet(peer.cq);
    let_msync_go_on(&peer, call);
    expect_completion(peer.cq, 1, IBV_WC_RDMA_READ, (uint32_t)len, peer.qp_num);
    kill_peer(&peer);
    expect_file(path, &peer);
    close_killed_peer(&peer);
}

/* The peer makes nothing durable, so the flush costs no more than its round trip. */
static void test_flush_for_visibility(const char *path) {
    struct peer_process peer = start_peer(path, stop_at_msync);
    for (uintptr_t number = 1; number <= 3; number++) {
        fill(&peer, (char)number);
        OK(rpma_flush(peer.conn, peer.remote, 0, SIZE, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NUMBER(number)));
        expect_completion(peer.cq, number, IBV_WC_RDMA_READ, SIZE, peer.qp_num);
        expect_file(path, &peer);
    }
    CHECK(!is_readable(peer.descriptor));
    /* The filter would have stopped a call. */
    OK(rpma_flush(peer.conn, peer.remote, 0, 8, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS, NUMBER(4)));
    let_msync_go_on(&peer, expect_msync(&peer, 0, 8));
    expect_completion(peer.cq, 4, IBV_WC_RDMA_READ, 8, peer.qp_num);
    kill_peer(&peer);
    close_killed_peer(&peer);
}

/* A device that fails makes the flush fail, and so the connection. */
static void test_failed_msync(const char *path) {
    struct peer_process peer = start_peer(path, stop_at_msync);
    fill(&peer, 1);
    OK(rpma_flush(peer.conn, peer.remote, 0, SIZE, RPMA_FLUSH_TYPE_PERSISTENT, ON_ERROR, NUMBER(1)));
    let_msync_fail(&peer, expect_msync(&peer, 0, SIZE), EIO);
    expect_failure(peer.cq, 1, IBV_WC_REM_OP_ERR, peer.qp_num);
    expect_event(peer.conn, RPMA_CONN_CLOSED);
    OK(rpma_flush(peer.conn, peer.remote, 0, SIZE, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS, NUMBER(2)));
    expect_failure(peer.cq, 2, IBV_WC_WR_FLUSH_ERR, peer.qp_num);
    kill_peer(&peer);
    close_peer(&peer);
}

/* Memory that is no file cannot be made durable. */
static void test_memory_without_a_file(void) {
    struct rpma_peer *peer = open_peer();
    struct rpma_mr_local *mr = NULL;
    char *memory = allocate(4096);
    RETURNS(RPMA_E_PROVIDER, rpma_mr_reg(peer, memory, 4096, RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, &mr));
    /* With another usage it is registered, and the descriptor says that it is not persistent. */
    OK(rpma_mr_reg(peer, memory, 4096,
                   RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, &mr));
    unsigned char descriptor[21];
    OK(rpma_mr_get_descriptor(mr, descriptor));
    CHECK(descriptor[20] == RPMA_MR_USAGE_WRITE_SRC);
    OK(rpma_mr_dereg(&mr));
    CHECK(mr == NULL);
    OK(rpma_peer_delete(&peer));
    free(memory);
}

int main(int argc, char **argv) {
    char path[4096];
    CHECK(argc == 2);
    snprintf(path, sizeof(path), "%s/durable", argv[1]);
    alarm(300);
    test_persistent_flush(path, 0, SIZE);
    test_persistent_flush(path, 2 * PAGE + 100, PAGE + 50);
    test_flush_for_visibility(path);
    test_failed_msync(path);
    test_memory_without_a_file();
    return 0;
}
