/* Signals during a wait: a handler with SA_RESTART leaves the wait alone, and one without it ends the wait. */

#define _GNU_SOURCE

#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>

/* Its handler is installed with SA_RESTART. */
#define RESTARTING SIGUSR1
/* Its handler is installed without. */
#define ENDING SIGUSR2

enum wait_kind {
    CQ_WAIT,
    CONN_COMPLETION_WAIT,
    CONN_WAIT,
    CONN_NEXT_EVENT,
    EP_NEXT_CONN_REQ,
    /* The same, of an endpoint whose descriptor the program has asked for. */
    EP_NEXT_CONN_REQ_WATCHED,
    WAIT_KINDS
};

struct wait {
    enum wait_kind kind;
    struct pair pair;
    /* Of the thread that waits. */
    _Atomic pid_t thread_id;
    atomic_bool is_over;
    int returned;
    struct rpma_conn_req *request;
};

static atomic_int restarting_count, ending_count;

static void handle(int signal_number) {
    atomic_fetch_add(signal_number == RESTARTING ? &restarting_count : &ending_count, 1);
}

/* The library may know the handlers of 10 ms ago. */
static void install(int signal_number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(sigaction(signal_number, &action, NULL) == 0);
    usleep(30000);
}

static void sleep_1_ms(void) {
    usleep(1000);
}

static int wait_once(struct wait *wait) {
    struct rpma_cq *cq = NULL;
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    int returned;
    switch (wait->kind) {
    case CQ_WAIT:
        return rpma_cq_wait(wait->pair.server_cq);
    case CONN_COMPLETION_WAIT:
        return rpma_conn_completion_wait(wait->pair.server);
    case CONN_WAIT:
        return rpma_conn_wait(wait->pair.server, 0, &cq, NULL);
    case CONN_NEXT_EVENT:
        returned = rpma_conn_next_event(wait->pair.server, &event);
        CHECK(event == (returned == 0 ? RPMA_CONN_CLOSED : RPMA_CONN_UNDEFINED));
        return returned;
    default:
        returned = rpma_ep_next_conn_req(wait->pair.listener.ep, NULL, &wait->request);
        CHECK((wait->request != NULL) == (returned == 0));
        return returned;
    }
}

/* The error that the wait of librpma returns if a signal has ended it. */
static int interrupted(enum wait_kind kind) {
    bool is_of_completions = kind == CQ_WAIT || kind == CONN_COMPLETION_WAIT || kind == CONN_WAIT;
    return is_of_completions ? RPMA_E_NO_COMPLETION : RPMA_E_PROVIDER;
}

/* Whether a thread sleeps in poll(2) or ppoll(2). */
static bool is_asleep(pid_t thread_id) {
    char path[64];
    long number = -1;
    snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", thread_id);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        /* The thread has ended. */
        CHECK(errno == ENOENT);
        return false;
    }
    int fields = fscanf(file, "%ld", &number);
    fclose(file);
    return fields == 1 && (number == SYS_poll || number == SYS_ppoll);
}

static void wait_until_asleep(pid_t thread_id) {
    while (!is_asleep(thread_id)) {
        sleep_1_ms();
    }
}

/* Makes happen what the wait waits for. */
static void satisfy(struct wait *wait) {
    struct rpma_conn *client = NULL;
    switch (wait->kind) {
    case CONN_NEXT_EVENT:
        OK(rpma_conn_disconnect(wait->pair.client));
        break;
    case EP_NEXT_CONN_REQ:
    case EP_NEXT_CONN_REQ_WATCHED:
        client = request_connection(&wait->pair.listener);
        while (wait->request == NULL) {
            sleep_1_ms();
        }
        OK(rpma_conn_delete(&client));
        break;
    default:
        OK(rpma_send(wait->pair.client, NULL, 0, 0, RPMA_F_COMPLETION_ON_ERROR, NULL));
    }
}

static void send_restarting_signals(pthread_t thread, pid_t thread_id) {
    for (int count = 0; count < 3; count++) {
        wait_until_asleep(thread_id);
        int before = atomic_load(&restarting_count);
        CHECK(pthread_kill(thread, RESTARTING) == 0);
        while (atomic_load(&restarting_count) == before) {
            sleep_1_ms();
        }
    }
    wait_until_asleep(thread_id);
}

/* Ends a wait by signals to its thread, or to the process if none is given. A thread that is awake for a
   moment runs the handler before it sleeps again, over hardware, too. Then it needs another signal. */
static void send_ending_signals(const pthread_t *thread, pid_t thread_id, atomic_bool *is_over) {
    while (!atomic_load(is_over)) {
        if (is_asleep(thread_id)) {
            CHECK((thread ? pthread_kill(*thread, ENDING) : kill(getpid(), ENDING)) == 0);
            for (int ms = 0; ms < 2000 && !atomic_load(is_over); ms++) {
                sleep_1_ms();
            }
        }
    }
}

static void *run_wait(void *argument) {
    struct wait *wait = argument;
    atomic_store(&wait->thread_id, (pid_t)syscall(SYS_gettid));
    wait->returned = wait_once(wait);
    atomic_store(&wait->is_over, true);
    return NULL;
}

/* Starts a thread that waits. Returns once the thread runs. */
static pthread_t start_wait(struct wait *wait) {
    pthread_t thread;
    wait->is_over = false;
    wait->thread_id = 0;
    CHECK(pthread_create(&thread, NULL, run_wait, wait) == 0);
    while (atomic_load(&wait->thread_id) == 0) {
        sleep_1_ms();
    }
    return thread;
}

/* Ends a wait by what it waits for. */
static void end_wait(struct wait *wait, pthread_t thread) {
    satisfy(wait);
    CHECK(pthread_join(thread, NULL) == 0);
    RETURNS(0, wait->returned);
}

/* Handlers of the given kinds are installed. A wait outlasts those with SA_RESTART, and ends by one without. */
static void test_wait(enum wait_kind kind, bool has_restarting, bool has_ending) {
    struct listener listener = open_listener();
    int fd = -1;
    OK(rpma_conn_cfg_set_compl_channel(listener.cfg, kind == CONN_WAIT));
    struct wait wait = {.kind = kind, .pair = connect_pair(listener)};
    OK(rpma_recv(wait.pair.server, NULL, 0, 0, NUMBER(1)));
    if (kind == EP_NEXT_CONN_REQ_WATCHED) {
        OK(rpma_ep_get_fd(listener.ep, &fd));
    }
    install(RESTARTING, has_restarting ? handle : SIG_DFL, SA_RESTART);
    install(ENDING, has_ending ? handle : SIG_DFL, 0);
    pthread_t thread = start_wait(&wait);
    if (has_restarting) {
        send_restarting_signals(thread, wait.thread_id);
    }
    if (has_ending) {
        int before = atomic_load(&ending_count);
        send_ending_signals(&thread, wait.thread_id, &wait.is_over);
        CHECK(pthread_join(thread, NULL) == 0);
        RETURNS(interrupted(kind), wait.returned);
        CHECK(atomic_load(&ending_count) > before);
        /* The program may wait again. */
        thread = start_wait(&wait);
    }
    end_wait(&wait, thread);
    OK(rpma_conn_req_delete(&wait.request));
    if (kind == CONN_NEXT_EVENT) {
        OK(rpma_conn_delete(&wait.pair.client));
        OK(rpma_conn_delete(&wait.pair.server));
        close_memory(&wait.pair.near);
        close_memory(&wait.pair.far);
        close_listener(&wait.pair.listener);
    } else {
        close_pair(&wait.pair);
    }
}

static void *interrupt_main_thread(void *is_over) {
    sigset_t all;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
    send_ending_signals(NULL, getpid(), is_over);
    return NULL;
}

/* A signal to the process, as from Ctrl-C, ends the wait of its main thread, although other threads of the
   library are there. */
static void test_signal_to_the_process(bool has_restarting) {
    struct pair pair = open_pair();
    pthread_t thread;
    atomic_bool is_over = false;
    int before = atomic_load(&ending_count);
    install(RESTARTING, has_restarting ? handle : SIG_DFL, SA_RESTART);
    install(ENDING, handle, 0);
    CHECK(pthread_create(&thread, NULL, interrupt_main_thread, &is_over) == 0);
    RETURNS(RPMA_E_NO_COMPLETION, rpma_cq_wait(pair.server_cq));
    atomic_store(&is_over, true);
    CHECK(atomic_load(&ending_count) > before);
    CHECK(pthread_join(thread, NULL) == 0);
    close_pair(&pair);
}

/* A signal that the thread blocks, and one that the program ignores, do not disturb the wait. */
static void test_blocked_and_ignored_signals(void) {
    struct wait wait = {.kind = CQ_WAIT, .pair = open_pair()};
    sigset_t blocked, before;
    int count = atomic_load(&ending_count);
    OK(rpma_recv(wait.pair.server, NULL, 0, 0, NUMBER(1)));
    install(RESTARTING, SIG_IGN, 0);
    install(ENDING, handle, 0);
    sigemptyset(&blocked);
    sigaddset(&blocked, ENDING);
    CHECK(pthread_sigmask(SIG_BLOCK, &blocked, &before) == 0);
    pthread_t thread = start_wait(&wait);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    wait_until_asleep(wait.thread_id);
    CHECK(pthread_kill(thread, RESTARTING) == 0);
    CHECK(pthread_kill(thread, ENDING) == 0);
    sleep_1_ms();
    wait_until_asleep(wait.thread_id);
    end_wait(&wait, thread);
    CHECK(atomic_load(&ending_count) == count);
    close_pair(&wait.pair);
}

int main(void) {
    alarm(300);
    for (int kind = 0; kind < WAIT_KINDS; kind++) {
        test_wait(kind, true, false);
        test_wait(kind, false, true);
        test_wait(kind, true, true);
    }
    test_signal_to_the_process(false);
    test_signal_to_the_process(true);
    test_blocked_and_ignored_signals();
    return 0;
}
