/* What fio's engines for librpma do: librpma_apm, whose client flushes the file of the server, and librpma_gpspm, whose
   client asks the server by a message to flush. */

#include "check.h"

#include <sys/mman.h>
#include <sys/wait.h>

#define SIZE (1 << 20)
#define BLOCK 4096
#define DEPTH 16
#define BATCH 4
#define ROUNDS 8
#define MESSAGE 512
#define USAGE_OF_DATA                                                                        \
    (RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_WRITE_SRC)

static const int ALWAYS = RPMA_F_COMPLETION_ALWAYS;
static const int ON_ERROR = RPMA_F_COMPLETION_ON_ERROR;

/* What the server tells by its private data. */
struct workspace {
    uint16_t max_msg_num;
    uint8_t direct_write_to_pmem;
    uint8_t mr_desc_size;
    char descriptor[24];
};

/* A message to the server of gpspm. One of length 0 is the last. */
struct flush_request {
    uint64_t offset, length, index;
};

struct server {
    struct rpma_peer *peer;
    struct rpma_conn *conn;
    struct rpma_cq *cq;
    struct rpma_mr_local *ws_mr;
    struct rpma_mr_local *msg_mr;
    char *ws;
    char *messages;
};

struct client {
    struct rpma_peer *peer;
    struct rpma_conn *conn;
    struct rpma_cq *cq;
    const struct workspace *ws;
    struct rpma_mr_remote *server_mr;
    struct rpma_mr_local *orig_mr;
    struct rpma_mr_local *msg_mr;
    char *buffer;
    char *messages;
    int sends_posted, sends_completed, next_message;
};

static char content(unsigned round, size_t at) {
    return (char)(round * 31 + at * 7 + (at >> 12));
}

static void map_file(struct server *server, const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0);
    server->ws = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(server->ws != MAP_FAILED);
    close(fd);
}

/* Accepts one connection. Without a file, the server gives memory. */
static void open_server(struct server *server, const char *path, int port_fd, struct rpma_conn_cfg *cfg) {
    struct ibv_context *device = NULL;
    struct rpma_conn_req *request = NULL;
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    struct workspace ws = {.direct_write_to_pmem = path != NULL};
    struct rpma_conn_private_data data = {&ws, sizeof(ws)};
    size_t size = 0;
    uint32_t messages = 0;
    char port[8] = {0};

    (void)rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_INFO);
    (void)rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING);
    OK(rpma_utils_get_ibv_context(ADDRESS, RPMA_UTIL_IBV_CONTEXT_LOCAL, &device));
    OK(rpma_peer_new(device, &server->peer));
    if (cfg) {
        server->messages = allocate(DEPTH * 2 * MESSAGE);
        OK(rpma_mr_reg(server->peer, server->messages, DEPTH * 2 * MESSAGE,
                       RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV, &server->msg_mr));
    }
    struct rpma_ep *ep = listen_somewhere(server->peer, port);
    CHECK(write(port_fd, port, sizeof(port)) == sizeof(port));
    if (path) {
        map_file(server, path);
    } else {
        server->ws = allocate(SIZE);
    }
    OK(rpma_mr_reg(server->peer, server->ws, SIZE,
                   USAGE_OF_DATA | (path ? RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT : RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY),
                   &server->ws_mr));
    if (path) {
        OK(rpma_mr_advise(server->ws_mr, 0, SIZE, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH));
    }
    OK(rpma_mr_get_descriptor_size(server->ws_mr, &size));
    CHECK(size <= sizeof(ws.descriptor));
    OK(rpma_mr_get_descriptor(server->ws_mr, ws.descriptor));
    ws.mr_desc_size = (uint8_t)size;
    if (cfg) {
        OK(rpma_conn_cfg_get_rq_size(cfg, &messages));
        ws.max_msg_num = (uint16_t)messages;
    }
    OK(rpma_ep_next_conn_req(ep, cfg, &request));
    for (int i = 0; cfg && i < DEPTH; i++) {
        OK(rpma_conn_req_recv(request, server->msg_mr, (2 * i + 1) * MESSAGE, MESSAGE, NUMBER(i)));
    }
    OK(rpma_conn_req_connect(&request, &data, &server->conn));
    OK(rpma_conn_next_event(server->conn, &event));
    CHECK(event == RPMA_CONN_ESTABLISHED);
    OK(rpma_ep_shutdown(&ep));
    OK(rpma_conn_get_cq(server->conn, &server->cq));
}

static void close_server(struct server *server) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    OK(rpma_conn_next_event(server->conn, &event));
    CHECK(event == RPMA_CONN_CLOSED);
    for (size_t i = 0; i < DEPTH * BLOCK; i++) {
        CHECK(server->ws[i] == content(ROUNDS - 1, i));
    }
    OK(rpma_conn_disconnect(server->conn));
    OK(rpma_conn_delete(&server->conn));
    OK(rpma_mr_dereg(&server->ws_mr));
    if (server->msg_mr) {
        OK(rpma_mr_dereg(&server->msg_mr));
    }
    OK(rpma_peer_delete(&server->peer));
}

/* Waits for the completion of a message, as with busy_wait_polling=0. */
static struct ibv_wc wait_for_message(struct rpma_cq *cq) {
    struct ibv_wc wc;
    int result;
    while ((result = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION) {
        result = rpma_cq_wait(cq);
        CHECK(result == 0 || result == RPMA_E_NO_COMPLETION);
    }
    CHECK(result == 0 && wc.status == IBV_WC_SUCCESS);
    return wc;
}

static void serve_messages(struct server *server) {
    for (;;) {
        struct ibv_wc wc = wait_for_message(server->cq);
        size_t index = (size_t)wc.wr_id;
        struct flush_request request;
        if (wc.opcode == IBV_WC_SEND) {
            continue;
        }
        CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == sizeof(request));
        memcpy(&request, server->messages + (2 * index + 1) * MESSAGE, sizeof(request));
        if (request.length == 0) {
            return;
        }
        CHECK(request.offset + request.length <= SIZE);
        OK(rpma_recv(server->conn, server->msg_mr, (2 * index + 1) * MESSAGE, MESSAGE, NUMBER(index)));
        memcpy(server->messages + 2 * index * MESSAGE, &request.index, sizeof(request.index));
        OK(rpma_send(server->conn, server->msg_mr, 2 * index * MESSAGE, sizeof(request.index), ALWAYS, NULL));
    }
}

static void open_client(struct client *client, const char *port, struct rpma_conn_cfg *cfg) {
    struct ibv_context *device = NULL;
    struct rpma_conn_req *request = NULL;
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    struct rpma_conn_private_data data = {NULL, 0};
    size_t size = 0;
    int flush_type = 0;

    OK(rpma_utils_get_ibv_context(ADDRESS, RPMA_UTIL_IBV_CONTEXT_REMOTE, &device));
    OK(rpma_peer_new(device, &client->peer));
    OK(rpma_conn_req_new(client->peer, ADDRESS, port, cfg, &request));
    OK(rpma_conn_req_connect(&request, NULL, &client->conn));
    OK(rpma_conn_next_event(client->conn, &event));
    CHECK(event == RPMA_CONN_ESTABLISHED);
    OK(rpma_conn_get_cq(client->conn, &client->cq));
    OK(rpma_conn_get_private_data(client->conn, &data));
    CHECK(data.len >= sizeof(*client->ws));
    client->ws = data.ptr;
    OK(rpma_mr_remote_from_descriptor(client->ws->descriptor, client->ws->mr_desc_size, &client->server_mr));
    OK(rpma_mr_remote_get_size(client->server_mr, &size));
    CHECK(size == SIZE);
    OK(rpma_mr_remote_get_flush_type(client->server_mr, &flush_type));
    CHECK(!(flush_type & RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT) == !client->ws->direct_write_to_pmem);
    OK(rpma_conn_cfg_delete(&cfg));
    client->buffer = allocate(DEPTH * BLOCK);
    /* This memory is of no file, and yet fio lets peers flush it. */
    OK(rpma_mr_reg(client->peer, client->buffer, DEPTH * BLOCK, USAGE_OF_DATA | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT,
                   &client->orig_mr));
}

static void close_client(struct client *client) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    OK(rpma_mr_dereg(&client->orig_mr));
    OK(rpma_mr_remote_delete(&client->server_mr));
    OK(rpma_conn_disconnect(client->conn));
    OK(rpma_conn_next_event(client->conn, &event));
    CHECK(event == RPMA_CONN_CLOSED);
    OK(rpma_conn_delete(&client->conn));
    OK(rpma_peer_delete(&client->peer));
}

/* Polls for a completion. */
static struct ibv_wc poll_completion(struct client *client) {
    struct ibv_wc wc;
    int result;
    while ((result = rpma_cq_get_wc(client->cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION) {
    }
    CHECK(result == 0);
    if (wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "operation %lu: %s\n", (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
        exit(1);
    }
    client->sends_completed += wc.opcode == IBV_WC_SEND;
    return wc;
}

static void complete_sends(struct client *client) {
    while (client->sends_completed < client->sends_posted) {
        CHECK(poll_completion(client).opcode == IBV_WC_SEND);
    }
}

/* Writes some blocks in sequence. Only what flushes them completes. */
static void write_blocks(struct client *client, int first, int count) {
    for (int i = first; i < first + count; i++) {
        OK(rpma_write(client->conn, client->server_mr, (size_t)i * BLOCK, client->orig_mr, (size_t)i * BLOCK, BLOCK,
                      ON_ERROR, NUMBER(i)));
    }
}

static void read_blocks(struct client *client) {
    memset(client->buffer, 0, DEPTH * BLOCK);
    for (int i = 0; i < DEPTH; i++) {
        OK(rpma_read(client->conn, client->orig_mr, (size_t)i * BLOCK, client->server_mr, (size_t)i * BLOCK, BLOCK,
                     i == DEPTH - 1 ? ALWAYS : ON_ERROR, NUMBER(i)));
    }
    struct ibv_wc wc = poll_completion(client);
    CHECK(wc.wr_id == DEPTH - 1 && wc.opcode == IBV_WC_RDMA_READ);
    for (size_t i = 0; i < DEPTH * BLOCK; i++) {
        CHECK(client->buffer[i] == content(ROUNDS - 1, i));
    }
}

static void fill_buffer(struct client *client, unsigned round) {
    for (size_t i = 0; i < DEPTH * BLOCK; i++) {
        client->buffer[i] = content(round, i);
    }
}

static void run_apm_client(const char *port) {
    struct client client = {0};
    struct rpma_conn_cfg *cfg = patient_cfg();
    struct rpma_peer_cfg *peer_cfg = NULL;

    OK(rpma_conn_cfg_set_sq_size(cfg, DEPTH + DEPTH / BATCH));
    OK(rpma_conn_cfg_set_cq_size(cfg, DEPTH + DEPTH / BATCH));
    open_client(&client, port, cfg);
    CHECK(client.ws->direct_write_to_pmem);
    OK(rpma_peer_cfg_new(&peer_cfg));
    OK(rpma_peer_cfg_set_direct_write_to_pmem(peer_cfg, true));
    OK(rpma_conn_apply_remote_peer_cfg(client.conn, peer_cfg));
    OK(rpma_peer_cfg_delete(&peer_cfg));
    for (unsigned round = 0; round < ROUNDS; round++) {
        fill_buffer(&client, round);
        for (int first = 0; first < DEPTH; first += BATCH) {
            write_blocks(&client, first, BATCH);
            OK(rpma_flush(client.conn, client.server_mr, (size_t)first * BLOCK, BATCH * BLOCK,
                          RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS, NUMBER(first + BATCH - 1)));
        }
        for (int last = BATCH - 1; last < DEPTH; last += BATCH) {
            CHECK(poll_completion(&client).wr_id == (uint64_t)last);
        }
    }
    read_blocks(&client);
    close_client(&client);
}

static void send_request(struct client *client, struct flush_request request, size_t at) {
    memcpy(client->messages + at, &request, sizeof(request));
    OK(rpma_send(client->conn, client->msg_mr, at, sizeof(request), ALWAYS, NULL));
    client->sends_posted++;
}

static size_t next_message(struct client *client) {
    return (size_t)(client->next_message++ % (DEPTH / BATCH)) * 2 * MESSAGE;
}

static void run_gpspm_client(const char *port) {
    struct client client = {0};
    struct rpma_conn_cfg *cfg = patient_cfg();
    const uint32_t messages = DEPTH / BATCH;

    OK(rpma_conn_cfg_set_sq_size(cfg, DEPTH + messages));
    OK(rpma_conn_cfg_set_rq_size(cfg, messages));
    OK(rpma_conn_cfg_set_cq_size(cfg, DEPTH + messages * 2));
    open_client(&client, port, cfg);
    CHECK(messages <= client.ws->max_msg_num);
    client.messages = allocate(messages * 2 * MESSAGE);
    OK(rpma_mr_reg(client.peer, client.messages, messages * 2 * MESSAGE, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV,
                   &client.msg_mr));
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t last = BATCH - 1;
        fill_buffer(&client, round);
        for (int first = 0; first < DEPTH; first += BATCH) {
            size_t at = next_message(&client);
            struct flush_request request = {(uint64_t)first * BLOCK, BATCH * BLOCK, (uint64_t)first + BATCH - 1};
            write_blocks(&client, first, BATCH);
            OK(rpma_recv(client.conn, client.msg_mr, at + MESSAGE, MESSAGE, client.messages + at + MESSAGE));
            send_request(&client, request, at);
        }
        while (last < DEPTH) {
            struct ibv_wc wc = poll_completion(&client);
            if (wc.opcode == IBV_WC_RECV) {
                CHECK(*(uint64_t *)(uintptr_t)wc.wr_id == last);
                last += BATCH;
            }
        }
        complete_sends(&client);
    }
    read_blocks(&client);
    send_request(&client, (struct flush_request){0, 0, 0}, next_message(&client));
    complete_sends(&client);
    OK(rpma_mr_dereg(&client.msg_mr));
    close_client(&client);
}

static void run_server(const char *path, int port_fd) {
    struct server server = {0};
    struct rpma_conn_cfg *cfg = NULL;
    if (!path) {
        OK(rpma_conn_cfg_new(&cfg));
        OK(rpma_conn_cfg_set_sq_size(cfg, DEPTH));
        OK(rpma_conn_cfg_set_rq_size(cfg, DEPTH));
        OK(rpma_conn_cfg_set_cq_size(cfg, DEPTH * 2));
    }
    open_server(&server, path, port_fd, cfg);
    if (cfg) {
        OK(rpma_conn_cfg_delete(&cfg));
        serve_messages(&server);
    }
    close_server(&server);
}

static void run_with_server(const char *path, void (*run_client)(const char *port)) {
    char port[8];
    int fds[2], status = -1;
    CHECK(pipe(fds) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    alarm(120);
    if (pid == 0) {
        run_server(path, fds[1]);
        exit(0);
    }
    close(fds[1]);
    CHECK(read(fds[0], port, sizeof(port)) == sizeof(port));
    close(fds[0]);
    run_client(port);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    char path[4096];
    CHECK(argc == 2);
    CHECK(snprintf(path, sizeof(path), "%s/fio.file", argv[1]) < (int)sizeof(path));
    run_with_server(path, run_apm_client);
    run_with_server(NULL, run_gpspm_client);
    return 0;
}
