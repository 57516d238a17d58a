/*
 * Shared by the programs that check MPI: bytes that both ends can compute, and a way to fail when they are wrong.
 */

#ifndef HOMESPUN_CHECKING_H
#define HOMESPUN_CHECKING_H

#include <mpi.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t) 1024)
#define MIB (1024 * KIB)

/* Guard bytes after each receive buffer, which must not be written. */
#define GUARD_BYTES ((size_t) 64)
#define GUARD 0xA5

static int rank, ranks;
static uint64_t checked_messages, checked_bytes;

/* Prints an error, and ends every rank. */
static inline void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "rank %d: ", rank);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

#define REQUIRE(condition) \
    do { \
        if (!(condition)) fail("line %d: failed: %s", __LINE__, #condition); \
    } while (0)

/* The bytes of a message from byte 8 * `index` on. Every message has its own seed. */
static inline uint64_t word(uint64_t seed, size_t index) {
    uint64_t mixed = (seed + index + 1) * 0x9E3779B97F4A7C15u;
    mixed ^= mixed >> 29;
    return mixed * 0xBF58476D1CE4E5B9u;
}

static inline uint64_t seed_of(int source, int dest, int tag) {
    return ((uint64_t) source << 52) ^ ((uint64_t) dest << 42) ^ ((uint64_t) tag << 24);
}

static inline void fill(unsigned char *buffer, size_t bytes, uint64_t seed) {
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t expected = word(seed, at / sizeof expected);
        memcpy(buffer + at, &expected, bytes - at < sizeof expected ? bytes - at : sizeof expected);
    }
}

/* Checks a message, and counts it. */
static inline void check(const unsigned char *buffer, size_t bytes, uint64_t seed, const char *what) {
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t expected = word(seed, at / sizeof expected);
        size_t here_bytes = bytes - at < sizeof expected ? bytes - at : sizeof expected;
        if (memcmp(buffer + at, &expected, here_bytes) != 0)
            fail("%s: wrong data in the 8 bytes from byte %zu on, of %zu", what, at, bytes);
    }
    checked_messages++;
    checked_bytes += bytes;
}

static inline unsigned char *allocate(size_t bytes) {
    unsigned char *buffer = malloc(bytes > 0 ? bytes : 1);
    if (buffer == NULL) fail("no memory for %zu bytes", bytes);
    return buffer;
}

/* A buffer for a receive of at most `bytes` bytes. Its initial bytes differ from the message. */
static inline unsigned char *room(size_t bytes) {
    unsigned char *buffer = allocate(bytes + GUARD_BYTES);
    memset(buffer, GUARD, bytes + GUARD_BYTES);
    return buffer;
}

/* Prepares a buffer from `room` for another receive. */
static inline void clear(unsigned char *buffer, size_t bytes) {
    memset(buffer, GUARD, bytes + GUARD_BYTES);
}

static inline unsigned char *message(int dest, int tag, size_t bytes) {
    unsigned char *buffer = allocate(bytes);
    fill(buffer, bytes, seed_of(rank, dest, tag));
    return buffer;
}

static inline int next_rank(void) { return (rank + 1) % ranks; }
static inline int previous_rank(void) { return (rank + ranks - 1) % ranks; }

/* A small pseudorandom number, the same in every run. */
static inline unsigned scramble(unsigned number) { return (unsigned) (word(0x5CA4B1E, number) >> 40); }

#endif
