/* One of two processes that communicate over a provider named tcp. The provider of one process may be
 * homespun, that of the other libfabric's own tcp.
 *
 * usage: foreign_peer listen|dial|connect
 *
 * The process that listens prints its address as a line of hexadecimal digits, and makes progress until its
 * input ends. The other process reads that address from its input. With `dial` it sends messages to the
 * address from an unconnected endpoint until one fails. With `connect` it connects to the address with a
 * connected endpoint. Then it prints the failure. */

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include "endpoint_names.h"

enum { WAIT_SECONDS = 30 };

static struct fid_ep *endpoint;
static struct fid_eq *eq;
static struct fid_cq *cq;
static struct fid_av *av;

static void open_endpoint(enum fi_ep_type type)
{
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_CONTEXT };
    struct fid_fabric *fabric;
    struct fid_domain *domain;

    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT;
    hints->ep_attr->type = type;
    hints->fabric_attr->prov_name = strdup("tcp");
    MUST(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &info));
    MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
    MUST(fi_domain(fabric, info, &domain, NULL));
    MUST(fi_av_open(domain, &(struct fi_av_attr){ 0 }, &av, NULL));
    MUST(fi_eq_open(fabric, &(struct fi_eq_attr){ .wait_obj = FI_WAIT_UNSPEC }, &eq, NULL));
    MUST(fi_cq_open(domain, &cq_attr, &cq, NULL));
    MUST(fi_endpoint(domain, info, &endpoint, NULL));
    MUST(fi_ep_bind(endpoint, type == FI_EP_MSG ? &eq->fid : &av->fid, 0));
    MUST(fi_ep_bind(endpoint, &cq->fid, FI_TRANSMIT | FI_RECV));
    MUST(fi_enable(endpoint));
}

static void print_and_exit(const char *what, const char *text)
{
    printf("%s: %s\n", what, text);
    exit(0);
}

/* Reads a completion, if there is one. */
static int read_completion(void)
{
    struct fi_cq_entry entry;
    struct fi_cq_err_entry error = { 0 };
    ssize_t result = fi_cq_read(cq, &entry, 1);

    if (result == -FI_EAVAIL) {
        require(fi_cq_readerr(cq, &error, 0) == 1, "fi_cq_readerr", 0);
        print_and_exit("failed", fi_strerror(error.err));
    }
    require(result == 1 || result == -FI_EAGAIN, "fi_cq_read", result);
    return result == 1;
}

static void dial(void)
{
    static char message[] = "message";
    static struct fi_context context;
    unsigned char name[NAME_MAX_BYTES];
    fi_addr_t peer;
    time_t deadline = time(NULL) + WAIT_SECONDS;

    read_next_name(name);
    require(fi_av_insert(av, name, 1, &peer, 0, NULL) == 1, "fi_av_insert", 0);
    while (time(NULL) < deadline) {
        ssize_t result = fi_send(endpoint, message, sizeof message, NULL, peer, &context);
        if (result == -FI_EAGAIN) {
            read_completion();
            continue;
        }
        if (result)
            print_and_exit("refused", fi_strerror((int)-result));
        while (!read_completion() && time(NULL) < deadline)
            usleep(1000);
    }
    print_and_exit("silence", "neither success nor failure");
}

static void connect_to_peer(void)
{
    unsigned char name[NAME_MAX_BYTES];
    struct fi_eq_err_entry error = { 0 };
    struct fi_eq_cm_entry entry;
    uint32_t event;

    read_next_name(name);
    MUST(fi_connect(endpoint, name, NULL, 0));
    ssize_t result = fi_eq_sread(eq, &event, &entry, sizeof entry, WAIT_SECONDS * 1000, 0);
    if (result == -FI_EAVAIL) {
        require(fi_eq_readerr(eq, &error, 0) > 0, "fi_eq_readerr", 0);
        print_and_exit("failed", fi_strerror(error.err));
    }
    print_and_exit(result > 0 ? "connected" : "silence", "neither success nor failure");
}

static void serve(void)
{
    static char buffer[64];
    static struct fi_context context;
    struct pollfd input = { .fd = 0, .events = POLLIN };

    MUST(fi_recv(endpoint, buffer, sizeof buffer, NULL, FI_ADDR_UNSPEC, &context));
    while (poll(&input, 1, 1) == 0)
        if (read_completion())
            print_and_exit("received", buffer);
}

int main(int argc, char **argv)
{
    require(argc == 2, "usage: foreign_peer listen|dial|connect", 0);
    alarm(2 * WAIT_SECONDS);
    open_endpoint(strcmp(argv[1], "connect") == 0 ? FI_EP_MSG : FI_EP_RDM);
    if (strcmp(argv[1], "dial") == 0) {
        dial();
    } else if (strcmp(argv[1], "connect") == 0) {
        connect_to_peer();
    } else {
        print_name(endpoint);
        serve();
    }
    return 0;
}
