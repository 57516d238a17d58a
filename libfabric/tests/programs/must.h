/* Ends the program if something that must be true is not. */

#pragma once

#include <stdio.h>
#include <stdlib.h>

#include <rdma/fi_errno.h>

static void require(int is_true, const char *what, long result)
{
    if (is_true)
        return;
    fprintf(stderr, "%s: %s (%ld)\n", what, fi_strerror((int)-result), result);
    exit(1);
}

#define MUST(call)                              \
    do {                                        \
        long result_ = (long)(call);            \
        require(result_ == 0, #call, result_);  \
    } while (0)
