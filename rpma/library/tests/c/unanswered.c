/* A request that the peer does not answer: an event since librpma 0.14, and a failure before. */

#include "pair.h"

static void test_unanswered(bool is_event) {
    struct listener listener = open_listener();
    enum rpma_conn_event event = (enum rpma_conn_event)77;
    int fd = -1;
    OK(rpma_conn_cfg_set_timeout(listener.cfg, 100));
    struct rpma_conn *client = request_connection(&listener);
    OK(rpma_conn_get_event_fd(client, &fd));
    wait_readable(fd);
    if (is_event) {
        OK(rpma_conn_next_event(client, &event));
        CHECK(event == RPMA_CONN_UNREACHABLE);
    } else {
        RETURNS(RPMA_E_UNKNOWN, rpma_conn_next_event(client, &event));
        CHECK((int)event == 77);
    }
    /* The event is no more, in either way. */
    set_nonblocking(fd);
    RETURNS(RPMA_E_NO_EVENT, rpma_conn_next_event(client, &event));
    OK(rpma_conn_delete(&client));
    close_listener(&listener);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    test_unanswered(strcmp(argv[1], "event") == 0);
    return 0;
}
