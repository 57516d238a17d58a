/* A peer in a process of its own, which is killed during writes, flushes and a wait for a message. */

#include <pthread.h>

#include "peer_process.h"

#define OUTSTANDING 10

static const int ALWAYS = RPMA_F_COMPLETION_ALWAYS;

static int post(struct peer_process *process, bool is_flush, uintptr_t number) {
    if (is_flush) {
        return rpma_flush(process->conn, process->remote, 0, SIZE, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS,
                          NUMBER(number));
    }
    return rpma_write(process->conn, process->remote, 0, process->mr, 0, SIZE, ALWAYS, NUMBER(number));
}

/* Each operation ends once, in order, also if the peer is killed. */
static void test_crash_during(const char *path, bool is_flush) {
    struct peer_process process = start_peer(path, NULL);
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

static void *kill_at_once(void *argument) {
    struct peer_process *process = argument;
    kill_peer(process);
    return NULL;
}

/* The end of the peer ends a wait for a message, which has begun or begins later. */
static void test_crash_during_wait(const char *path) {
    struct peer_process process = start_peer(path, NULL);
    pthread_t thread;
    OK(rpma_recv(process.conn, process.mr, 0, 8, NUMBER(7)));
    CHECK(pthread_create(&thread, NULL, kill_at_once, &process) == 0);
    expect_failure(process.cq, 7, IBV_WC_WR_FLUSH_ERR, process.qp_num);
    CHECK(pthread_join(thread, NULL) == 0);
    expect_event(process.conn, RPMA_CONN_CLOSED);
    close_peer(&process);
}

int main(int argc, char **argv) {
    char path[4096];
    CHECK(argc == 2);
    snprintf(path, sizeof(path), "%s/persistent", argv[1]);
    alarm(300);
    test_crash_during(path, false);
    test_crash_during(path, true);
    test_crash_during_wait(path);
    return 0;
}
