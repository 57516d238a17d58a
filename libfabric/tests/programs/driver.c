/* Replays how programs ask libfabric for an interface. Each program is a row of the table, and runs as two processes.
 *
 * usage: driver list | driver PROGRAM DOMAIN
 *
 * `list` prints the names of the programs. DOMAIN is shm, tcp or auto. */

#include "driver.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_SECONDS = 60, CELL_BYTES = 4096 };

/* The memory in which the ranks meet. */
struct board {
    atomic_uint arrived;
    char cells[RANKS][CELL_BYTES];
};

const struct program *program;
int rank;
const char *volatile step = "start";
static struct board *board;
static unsigned barriers;

void require(int is_true, const char *what, long result)
{
    if (is_true)
        return;
    fprintf(stderr, "rank %d: %s: %s (%ld)\n", rank, what, fi_strerror((int)-result), result);
    _exit(1);
}

static void end_late(int number)
{
    const char *late = step;

    (void)number;
    if (write(2, "too late: ", 10) + write(2, late, strlen(late)) + write(2, "\n", 1) > 0)
        _exit(1);
    _exit(1);
}

void barrier(struct fid_cq *cq)
{
    unsigned awaited = (unsigned)RANKS * ++barriers;

    atomic_fetch_add(&board->arrived, 1);
    WAIT_UNTIL(atomic_load(&board->arrived) >= awaited, cq ? make_progress(cq) : (void)usleep(100));
}

void exchange(const void *mine, size_t len_bytes, void *all)
{
    require(len_bytes <= CELL_BYTES, "too much to exchange", 0);
    memcpy(board->cells[rank], mine, len_bytes);
    barrier(NULL);
    for (int i = 0; i < RANKS; i++)
        memcpy((char *)all + (size_t)i * len_bytes, board->cells[i], len_bytes);
    barrier(NULL);
}

struct fi_info *new_hints(uint64_t caps)
{
    struct fi_info *hints = fi_allocinfo();

    require(hints != NULL, "fi_allocinfo", -FI_ENOMEM);
    hints->caps = caps;
    hints->ep_attr->type = FI_EP_RDM;
    if (program->provider)
        hints->fabric_attr->prov_name = strdup(program->provider);
    return hints;
}

/* What programs check that accept only providers whose names they know. */
static void require_expected(const struct fi_info *info, const struct fi_info *hints)
{
    const char *as = program->offered_as ? program->offered_as : "homespun";
    const char *expected = program->provider ? program->provider : as;
    int is_layered = strchr(expected, ';') != NULL;
    /* Without hints, the versions of old leave the choice to the provider. */
    int may_choose = program->version < FI_VERSION(1, 5) && hints->domain_attr->mr_mode == FI_MR_UNSPEC;

    require(strcmp(info->fabric_attr->prov_name, expected) == 0, info->fabric_attr->prov_name, 0);
    require(info->ep_attr->type == hints->ep_attr->type, "the type of endpoint", 0);
    require(may_choose || (info->domain_attr->mr_mode & ~hints->domain_attr->mr_mode) == 0, "modes of memory", 0);
    if (!program->offered_as)
        return;
    require(is_layered || info->fabric_attr->prov_version == FI_VERSION(1000, 0), "homespun's version", 0);
    require(strcmp(info->domain_attr->name, as) != 0, "the name of an interface", 0);
    require(!hints->addr_format || info->addr_format == hints->addr_format, "the address format", 0);
}

static uint32_t at_most_installed(uint32_t version)
{
    return version < fi_version() ? version : fi_version();
}

struct fi_info *query(struct fi_info *hints)
{
    struct fi_info *info;

    MUST(fi_getinfo(at_most_installed(program->version), NULL, NULL, 0, hints, &info));
    for (struct fi_info *each = info; each; each = each->next)
        require_expected(each, hints);
    fi_freeinfo(hints);
    return info;
}

void require_unmet(uint32_t version, const struct fi_info *hints)
{
    struct fi_info *info;

    require(fi_getinfo(at_most_installed(version), NULL, NULL, 0, hints, &info) == -FI_ENODATA, "met hints", 0);
}

/* A program that knows names of interfaces finds no domain for one that is missing. */
static void require_no_other_domain(struct session *session)
{
    char *name = session->info->domain_attr->name;
    struct fid_domain *domain;

    session->info->domain_attr->name = "no-such-interface";
    require(fi_domain(session->fabric, session->info, &domain, NULL) < 0, "a domain that does not exist", 0);
    session->info->domain_attr->name = name;
}

/* Requires that a further query finds the open fabric and the open domain. */
static void require_open_objects(const struct session *session)
{
    struct fi_info *again = query(fi_dupinfo(session->info));

    require(again->fabric_attr->fabric == session->fabric, "the open fabric", 0);
    require(again->domain_attr->domain == session->domain, "the open domain", 0);
    fi_freeinfo(again);
}

void open_domain_of(struct session *session, struct fi_info *info)
{
    session->info = info;
    MUST(fi_fabric(session->info->fabric_attr, &session->fabric, NULL));
    if (program->offered_as)
        require_no_other_domain(session);
    MUST(fi_domain(session->fabric, session->info, &session->domain, NULL));
    /* A layer has objects of its own. */
    if (program->offered_as && !(program->provider && strchr(program->provider, ';')))
        require_open_objects(session);
}

void insert_names(struct fid_ep *endpoint, struct fid_av *av, fi_addr_t *peers)
{
    struct name {
        size_t len_bytes;
        char bytes[NAME_MAX_BYTES];
    } mine = { 0 }, all[RANKS];

    /* Programs ask for the length first. */
    require(fi_getname(&endpoint->fid, NULL, &mine.len_bytes) == -FI_ETOOSMALL, "the length of the name", 0);
    require(mine.len_bytes <= NAME_MAX_BYTES, "a long name", 0);
    MUST(fi_getname(&endpoint->fid, mine.bytes, &mine.len_bytes));
    exchange(&mine, sizeof mine, all);
    for (int i = 0; i < RANKS; i++)
        require(fi_av_insert(av, all[i].bytes, 1, &peers[i], 0, NULL) == 1, "fi_av_insert", 0);
}

void close_session(struct session *session)
{
    CLOSE(session->endpoint);
    CLOSE(session->cq);
    CLOSE(session->av);
    CLOSE(session->domain);
    CLOSE(session->fabric);
    fi_freeinfo(session->info);
}

void make_progress(struct fid_cq *cq)
{
    ssize_t result = fi_cq_read(cq, NULL, 0);

    require(result >= 0 || result == -FI_EAGAIN, "fi_cq_read of nothing", result);
}

void await_completions(struct fid_cq *cq, int count)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = { 0 };
    ssize_t result;

    for (; count > 0; count--) {
        WAIT_UNTIL((result = fi_cq_read(cq, &entry, 1)) != -FI_EAGAIN, (void)0);
        if (result == -FI_EAVAIL) {
            require(fi_cq_readerr(cq, &error, 0) == 1, "fi_cq_readerr", 0);
            require(0, "an operation failed", -error.err);
        }
        require(result == 1, "fi_cq_read", result);
    }
}

void fill(void *memory, size_t len_bytes, unsigned seed)
{
    for (size_t i = 0; i < len_bytes; i++)
        ((unsigned char *)memory)[i] = (unsigned char)(seed + i * 7 + (i >> 8));
}

/* Starts the ranks. Returns whether all ended well. The others are ended when one fails. */
static int run_ranks(void)
{
    pid_t processes[RANKS];
    int ended_well = 1;

    for (rank = 0; rank < RANKS; rank++) {
        processes[rank] = fork();
        require(processes[rank] >= 0, "fork", 0);
        if (processes[rank] > 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGALRM, end_late);
        alarm(WAIT_SECONDS);
        run_hinted(program->hints());
        exit(0);
    }
    for (int i = 0; i < RANKS; i++) {
        int status;
        pid_t ended = wait(&status);
        int is_well = ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;

        if (!is_well && ended_well)
            fprintf(stderr, "%s: a rank failed: status %#x\n", program->name, status);
        ended_well &= is_well;
        for (int j = 0; j < RANKS; j++) {
            if (processes[j] == ended)
                processes[j] = 0;
            if (!ended_well && processes[j])
                kill(processes[j], SIGKILL);
        }
    }
    return ended_well;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (size_t i = 0; i < PROGRAM_COUNT; i++)
            printf("%s\n", PROGRAMS[i].name);
        return 0;
    }
    require(argc == 3, "usage: driver list | driver PROGRAM DOMAIN", 0);
    for (size_t i = 0; i < PROGRAM_COUNT; i++)
        if (strcmp(PROGRAMS[i].name, argv[1]) == 0)
            program = &PROGRAMS[i];
    require(program != NULL, "no such program", 0);
    setenv("FI_HOMESPUN_DOMAIN", argv[2], 1);
    /* The test may offer homespun under another name. */
    setenv("FI_PROVIDER", program->offered_as ? program->offered_as : "homespun", 0);
    if (program->offered_as)
        setenv("FI_HOMESPUN_AS", program->offered_as, 0);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(board != MAP_FAILED, "mmap", 0);
    return !run_ranks();
}
