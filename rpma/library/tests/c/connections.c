/* Requests, events and private data, and what operations report when they fail. */

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "check.h"

static void test_private_data_and_early_receives(void) {
    struct listener listener = open_listener();
    struct memory memory = open_memory(listener.peer);
    struct rpma_peer *peer = listener.peer;
    const char *port = listener.port;
    struct rpma_conn_req *request = NULL, *of_peer = NULL;
    struct rpma_conn *client = NULL, *server = NULL;
    struct rpma_conn_private_data sent = {"may I?", 7}, found = {NULL, 0};
    struct rpma_cq *cq = NULL;
    uint32_t qp_num = 0;
    int fd = -1;
    struct rpma_ep *ep = listener.ep, *other = NULL;

    RETURNS(RPMA_E_PROVIDER, rpma_ep_listen(peer, ADDRESS, port, &other));
    CHECK(other == NULL);
    OK(rpma_ep_listen(peer, ADDRESS, "0", &other));
    OK(rpma_ep_shutdown(&other));
    INVALID(rpma_ep_listen(peer, NULL, port, &other));
    INVALID(rpma_ep_listen(peer, ADDRESS, NULL, &other));
    INVALID(rpma_ep_listen(peer, ADDRESS, port, NULL));
    INVALID(rpma_ep_get_fd(ep, NULL));
    INVALID(rpma_ep_next_conn_req(ep, NULL, NULL));
    INVALID(rpma_conn_req_new(peer, NULL, port, NULL, &request));
    INVALID(rpma_conn_req_new(peer, ADDRESS, NULL, NULL, &request));
    INVALID(rpma_conn_req_new(peer, ADDRESS, port, NULL, NULL));
    RETURNS(RPMA_E_PROVIDER, rpma_conn_req_new(peer, "no-such-host.invalid", port, NULL, &request));

    /* The descriptor is readable while there is a request, and only then. */
    OK(rpma_ep_get_fd(ep, &fd));
    CHECK(!is_readable(fd));
    set_nonblocking(fd);
    RETURNS(RPMA_E_NO_EVENT, rpma_ep_next_conn_req(ep, NULL, &of_peer));
    OK(rpma_conn_req_new(peer, ADDRESS, port, listener.cfg, &request));
    OK(rpma_conn_req_get_private_data(request, &found));
    CHECK(found.ptr == NULL && found.len == 0);
    INVALID(rpma_conn_req_get_private_data(request, NULL));
    INVALID(rpma_conn_req_recv(request, NULL, 0, 0, NUMBER(1)));
    INVALID(rpma_conn_req_recv(request, memory.mr, 4092, 8, NUMBER(1)));
    OK(rpma_conn_req_recv(request, memory.mr, 0, 8, NUMBER(1)));
    OK(rpma_conn_req_connect(&request, &sent, &client));
    wait_readable(fd);
    OK(rpma_ep_next_conn_req(ep, NULL, &of_peer));
    CHECK(!is_readable(fd));
    OK(rpma_conn_req_get_private_data(of_peer, &found));
    CHECK(found.len == 7 && strcmp(found.ptr, "may I?") == 0);
    const void *of_request = found.ptr;
    sent = (struct rpma_conn_private_data){"you may", 8};
    OK(rpma_conn_req_connect(&of_peer, &sent, &server));
    CHECK(of_peer == NULL);
    OK(rpma_conn_get_private_data(server, &found));
    CHECK(found.ptr == of_request && found.len == 7 && strcmp(found.ptr, "may I?") == 0);
    expect_event(server, RPMA_CONN_ESTABLISHED);
    expect_event(client, RPMA_CONN_ESTABLISHED);
    OK(rpma_conn_get_private_data(client, &found));
    CHECK(found.len == 8 && strcmp(found.ptr, "you may") == 0);

    /* The receive that was posted first takes the first message. */
    OK(rpma_send(server, memory.mr, 32, 8, ON_ERROR, NULL));
    OK(rpma_conn_get_cq(client, &cq));
    OK(rpma_conn_get_qp_num(client, &qp_num));
    expect_completion(cq, 1, IBV_WC_RECV, 8, qp_num);

    /* After O_NONBLOCK an event is not waited for. */
    enum rpma_conn_event event;
    OK(rpma_conn_get_event_fd(client, &fd));
    CHECK(!is_readable(fd));
    set_nonblocking(fd);
    RETURNS(RPMA_E_NO_EVENT, rpma_conn_next_event(client, &event));

    OK(rpma_conn_delete(&server));
    wait_readable(fd);
    OK(rpma_conn_next_event(client, &event));
    CHECK(event == RPMA_CONN_CLOSED);
    RETURNS(RPMA_E_NO_EVENT, rpma_conn_next_event(client, &event));
    OK(rpma_conn_disconnect(client));
    OK(rpma_conn_delete(&client));
    OK(rpma_ep_shutdown(&other));
    close_memory(&memory);
    close_listener(&listener);
}

static void test_rejected_and_refused(void) {
    struct listener listener = open_listener();
    struct rpma_conn_req *request = NULL, *of_peer = NULL;
    struct rpma_conn *client = NULL;
    struct rpma_conn_private_data bad = {NULL, 1}, empty = {"", 0};

    /* The peer deletes the request. */
    client = request_connection(&listener);
    OK(rpma_ep_next_conn_req(listener.ep, NULL, &of_peer));
    OK(rpma_conn_req_delete(&of_peer));
    CHECK(of_peer == NULL);
    expect_event(client, RPMA_CONN_REJECTED);
    OK(rpma_conn_delete(&client));

    /* A connect with bad arguments consumes the request, and so rejects it. */
    for (int attempt = 0; attempt < 3; attempt++) {
        client = request_connection(&listener);
        OK(rpma_ep_next_conn_req(listener.ep, NULL, &of_peer));
        struct rpma_conn *server = NULL;
        const struct rpma_conn_private_data *data = attempt == 0 ? &bad : attempt == 1 ? &empty : NULL;
        INVALID(rpma_conn_req_connect(&of_peer, data, attempt == 2 ? NULL : &server));
        CHECK(of_peer == NULL && server == NULL);
        expect_event(client, RPMA_CONN_REJECTED);
        OK(rpma_conn_delete(&client));
    }

    /* A request that was not made. */
    OK(rpma_conn_req_new(listener.peer, ADDRESS, listener.port, listener.cfg, &request));
    OK(rpma_conn_req_delete(&request));

    /* Nothing listens. */
    find_port(listener.port);
    client = request_connection(&listener);
    expect_event(client, RPMA_CONN_REJECTED);
    OK(rpma_conn_delete(&client));
    close_listener(&listener);
}

/* An access that the peer refuses fails, ends the connection, and flushes what was posted. */
static void test_refused_access(void) {
    struct pair pair = open_pair();
    OK(rpma_recv(pair.client, pair.near.mr, 0, 8, NUMBER(1)));
    OK(rpma_write(pair.client, pair.far.remote, 4090, pair.near.mr, 0, 8, ON_ERROR, NUMBER(2)));
    expect_failure(pair.client_cq, 2, IBV_WC_REM_ACCESS_ERR, pair.client_qp);
    expect_failure(pair.client_cq, 1, IBV_WC_WR_FLUSH_ERR, pair.client_qp);
    /* A post after the failure has the same end. */
    OK(rpma_send(pair.client, pair.near.mr, 0, 8, ON_ERROR, NUMBER(3)));
    expect_failure(pair.client_cq, 3, IBV_WC_WR_FLUSH_ERR, pair.client_qp);
    close_pair(&pair);
}

/* Every operation that needs the connection, before it is there and after it has ended. */
static void expect_not_connected(struct rpma_conn *conn, const struct memory *memory) {
    struct rpma_mr_local *mr = memory->mr;
    struct rpma_mr_remote *far = memory->remote;
    RETURNS(RPMA_E_PROVIDER, rpma_send(conn, mr, 0, 8, ALWAYS, NULL));
    RETURNS(RPMA_E_PROVIDER, rpma_send_with_imm(conn, mr, 0, 8, ALWAYS, 1, NULL));
    RETURNS(RPMA_E_PROVIDER, rpma_read(conn, mr, 0, far, 0, 8, ALWAYS, NULL));
    RETURNS(RPMA_E_PROVIDER, rpma_write(conn, far, 0, mr, 0, 8, ALWAYS, NULL));
    RETURNS(RPMA_E_PROVIDER, rpma_write_with_imm(conn, far, 0, mr, 0, 8, ALWAYS, 1, NULL));
    RETURNS(RPMA_E_PROVIDER, rpma_atomic_write(conn, far, 0, "12345678", ALWAYS, NULL));
    RETURNS(RPMA_E_PROVIDER, rpma_write_atomic(conn, far, 0, mr, 0, ALWAYS, NULL));
    RETURNS(RPMA_E_PROVIDER, rpma_flush(conn, far, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NULL));
}

static void test_operations_without_a_connection(void) {
    struct pair pair = open_pair();
    struct listener *listener = &pair.listener;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    struct rpma_mr_local *send_only = NULL, *mr = pair.near.mr;
    OK(rpma_mr_reg(listener->peer, pair.near.bytes, 64, RPMA_MR_USAGE_SEND, &send_only));

    OK(rpma_conn_req_new(listener->peer, ADDRESS, listener->port, NULL, &request));
    INVALID(rpma_conn_req_recv(request, send_only, 0, 8, NUMBER(1)));
    /* The first context is null, on which fio relies. */
    for (int number = 0; number < 10; number++) {
        OK(rpma_conn_req_recv(request, mr, 0, 8, NUMBER(number)));
    }
    RETURNS(RPMA_E_PROVIDER, rpma_conn_req_recv(request, mr, 0, 8, NUMBER(11)));
    OK(rpma_conn_req_connect(&request, NULL, &conn));
    expect_not_connected(conn, &pair.near);
    RETURNS(RPMA_E_PROVIDER, rpma_recv(conn, mr, 0, 8, NULL));
    RETURNS(RPMA_E_PROVIDER, rpma_conn_disconnect(conn));
    OK(rpma_conn_delete(&conn));

    OK(rpma_conn_disconnect(pair.client));
    expect_not_connected(pair.client, &pair.near);
    OK(rpma_mr_dereg(&send_only));
    close_pair(&pair);
}

/* Every call that may need a descriptor of the system fails if there is none, and works later. */
static void test_too_few_descriptors(void) {
    struct listener listener = open_listener();
    struct rpma_mr_local *mr = NULL;
    struct rlimit limit, none;
    struct rpma_conn_req *request = NULL, *prepared = NULL;
    struct rpma_conn *conn = NULL, *unanswered = NULL;
    struct rpma_ep *ep = NULL;
    struct rpma_cq *cq = NULL;
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    char port[8];
    int fd = -1;
    OK(rpma_conn_cfg_set_rcq_size(listener.cfg, 10));
    OK(rpma_conn_cfg_set_compl_channel(listener.cfg, true));
    struct pair pair = connect_pair(listener);
    OK(rpma_conn_req_new(listener.peer, ADDRESS, listener.port, listener.cfg, &prepared));
    find_port(port);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = (struct rlimit){.rlim_cur = 3, .rlim_max = limit.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    RETURNS(RPMA_E_PROVIDER, rpma_ep_listen(listener.peer, ADDRESS, port, &ep));
    RETURNS(RPMA_E_PROVIDER, rpma_ep_get_fd(listener.ep, &fd));
    RETURNS(RPMA_E_PROVIDER, rpma_conn_req_new(listener.peer, ADDRESS, listener.port, NULL, &request));
    RETURNS(RPMA_E_PROVIDER, rpma_conn_req_connect(&prepared, NULL, &conn));
    RETURNS(RPMA_E_PROVIDER, rpma_conn_wait(pair.server, 0, &cq, NULL));
    RETURNS(RPMA_E_PROVIDER, rpma_conn_get_compl_fd(pair.server, &fd));
    RETURNS(RPMA_E_PROVIDER, rpma_cq_get_fd(pair.server_cq, &fd));
    RETURNS(RPMA_E_PROVIDER, rpma_conn_get_completion_fd(pair.server, &fd));
    /* Whether memory is persistent cannot be found out. */
    RETURNS(RPMA_E_PROVIDER, rpma_mr_reg(listener.peer, pair.near.bytes, 8,
                                         RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, &mr));
    CHECK(mr == NULL);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(ep == NULL && request == NULL && prepared == NULL && conn == NULL && cq == NULL && fd == -1);
    OK(rpma_conn_get_compl_fd(pair.server, &fd));
    CHECK(fd >= 0);

    /* The request of a peer is then rejected. */
    unanswered = request_connection(&listener);
    OK(rpma_ep_get_fd(listener.ep, &fd));
    wait_readable(fd);
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    RETURNS(RPMA_E_PROVIDER, rpma_ep_next_conn_req(listener.ep, listener.cfg, &request));
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(request == NULL);
    /* This process is the peer, too, and may itself have been short of descriptors meanwhile. */
    OK(rpma_conn_get_event_fd(unanswered, &fd));
    wait_readable(fd);
    OK(rpma_conn_next_event(unanswered, &event));
    CHECK(event == RPMA_CONN_REJECTED || event == RPMA_CONN_LOST);
    OK(rpma_conn_delete(&unanswered));
    close_pair(&pair);
}

static void *accept_one(void *ep) {
    struct rpma_conn_req *request = NULL;
    OK(rpma_ep_next_conn_req(ep, NULL, &request));
    return request;
}

/* Rejects the request of a client, and closes both sides. */
static void reject(struct listener *listener, struct rpma_conn_req *request, struct rpma_conn *client) {
    OK(rpma_conn_req_delete(&request));
    expect_event(client, RPMA_CONN_REJECTED);
    OK(rpma_conn_delete(&client));
    close_listener(listener);
}

/* A thread that waits for a request gets it, although another asks for the descriptor meanwhile. */
static void test_descriptor_beside_a_wait(void) {
    struct listener listener = open_listener();
    pthread_t waiting;
    void *request = NULL;
    int fd = -1;
    CHECK(pthread_create(&waiting, NULL, accept_one, listener.ep) == 0);
    sched_yield();
    OK(rpma_ep_get_fd(listener.ep, &fd));
    struct rpma_conn *client = request_connection(&listener);
    CHECK(pthread_join(waiting, &request) == 0);
    reject(&listener, request, client);
}

/* A child that closes the listener of its parent leaves it to the parent. */
static void test_listener_in_a_child(void) {
    struct listener listener = open_listener();
    int fd = -1, status = -1;
    OK(rpma_ep_get_fd(listener.ep, &fd));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        OK(rpma_ep_shutdown(&listener.ep));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    struct rpma_conn *client = request_connection(&listener);
    wait_readable(fd);
    reject(&listener, accept_one(listener.ep), client);
}

int main(void) {
    test_listener_in_a_child();
    test_descriptor_beside_a_wait();
    test_private_data_and_early_receives();
    test_rejected_and_refused();
    test_refused_access();
    test_operations_without_a_connection();
    test_too_few_descriptors();
    return 0;
}
