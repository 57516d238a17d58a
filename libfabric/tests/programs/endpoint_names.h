/* How the processes of a test learn each other's addresses: as lines of hexadecimal digits on standard output and input. */

#pragma once

#include <stdio.h>
#include <string.h>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>

#include "must.h"

enum { NAME_MAX_BYTES = 64 };

static void print_name(struct fid_ep *endpoint)
{
    unsigned char name[NAME_MAX_BYTES];
    size_t len_bytes = sizeof name;

    MUST(fi_getname(&endpoint->fid, name, &len_bytes));
    for (size_t i = 0; i < len_bytes; i++)
        printf("%02x", name[i]);
    printf("\n");
    fflush(stdout);
}

/* Reads the next address from standard input. */
static void read_next_name(unsigned char name[static NAME_MAX_BYTES])
{
    char line[2 * NAME_MAX_BYTES + 2];

    require(fgets(line, sizeof line, stdin) != NULL, "too few addresses", 0);
    for (size_t i = 0; i < strlen(line) / 2; i++)
        require(sscanf(line + 2 * i, "%2hhx", &name[i]) == 1, "an address", 0);
}
