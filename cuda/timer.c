// A libcuda.so.1 before the driver's own that tells, when the program ends, which kernels took longest: events of the driver
// around each launch, so that no profiler has to be there. Built by `./test gpu`; `cuda/run-on-gpu` puts the driver's beside
// it as libcuda-driver.so.1, where the loader finds everything that is not here.
//
// usage: LD_LIBRARY_PATH=FOLDER:... PROGRAM
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Code;
typedef void *Handle;

#define TAKEN 64 // launches between two looks at their times
#define NAMES 1024

static struct {
    char name[160];
    double milliseconds;
    unsigned long launches;
} kernels[NAMES];

static struct {
    Handle begin, end;
    int kernel;
} taken[TAKEN];

static int known, pending;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *driver;

static void *real(const char *name) {
    if (!driver) driver = dlopen("libcuda-driver.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = driver ? dlsym(driver, name) : NULL;
    if (!found) {
        fprintf(stderr, "timer: the driver has no %s\n", name);
        abort();
    }
    return found;
}

// The function of the driver with this name.
#define REAL(type, name) ((type)real(name))

static int kernel_of(Handle function) {
    const char *name = "unknown";
    Code (*get_name)(const char **, Handle) = driver ? (Code(*)(const char **, Handle))dlsym(driver, "cuFuncGetName") : NULL;
    if (get_name) get_name(&name, function);
    for (int at = 0; at < known; at++)
        if (!strncmp(kernels[at].name, name, sizeof kernels[at].name - 1)) return at;
    if (known == NAMES) return NAMES - 1;
    strncpy(kernels[known].name, name, sizeof kernels[known].name - 1);
    return known++;
}

static void look(void) {
    Code (*wait)(Handle) = REAL(Code(*)(Handle), "cuEventSynchronize");
    Code (*elapsed)(float *, Handle, Handle) = REAL(Code(*)(float *, Handle, Handle), "cuEventElapsedTime");
    for (int at = 0; at < pending; at++) {
        float milliseconds = 0;
        if (wait(taken[at].end) == 0 && elapsed(&milliseconds, taken[at].begin, taken[at].end) == 0)
            kernels[taken[at].kernel].milliseconds += milliseconds;
    }
    pending = 0;
}

static int longest_first(const void *a, const void *b) {
    double x = kernels[*(const int *)a].milliseconds, y = kernels[*(const int *)b].milliseconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void tell(void) {
    int order[NAMES];
    double all = 0;
    // Before the driver ends: it was there earlier.
    look();
    for (int at = 0; at < known; at++) order[at] = at, all += kernels[at].milliseconds;
    qsort(order, known, sizeof *order, longest_first);
    fprintf(stderr, "timer: %.3f ms in %d kernels\n", all, known);
    for (int at = 0; at < known && at < 10; at++)
        fprintf(stderr, "timer: %10.3f ms %5.1f %% %8lu x %s\n", kernels[order[at]].milliseconds,
                all > 0 ? 100 * kernels[order[at]].milliseconds / all : 0, kernels[order[at]].launches, kernels[order[at]].name);
}

// Begins to time a launch in this stream, with the lock held; `timed_end` ends it.
static void timed_begin(Handle function, Handle stream) {
    static int is_set;
    if (!is_set) is_set = 1, atexit(tell);
    if (pending == TAKEN) look();
    Code (*create)(Handle *, unsigned) = REAL(Code(*)(Handle *, unsigned), "cuEventCreate");
    if (!taken[pending].begin && (create(&taken[pending].begin, 0) || create(&taken[pending].end, 0))) abort();
    taken[pending].kernel = kernel_of(function);
    kernels[taken[pending].kernel].launches++;
    REAL(Code(*)(Handle, Handle), "cuEventRecord")(taken[pending].begin, stream);
}

static void timed_end(Handle stream) { REAL(Code(*)(Handle, Handle), "cuEventRecord")(taken[pending++].end, stream); }

typedef Code Launch(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **);

Code cuLaunchKernel(Handle function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz, unsigned shared,
                    Handle stream, void **arguments, void **extra) {
    pthread_mutex_lock(&lock);
    timed_begin(function, stream);
    Code code = REAL(Launch *, "cuLaunchKernel")(function, x, y, z, tx, ty, tz, shared, stream, arguments, extra);
    timed_end(stream);
    pthread_mutex_unlock(&lock);
    return code;
}

// As much of the driver's struct as is read here.
struct LaunchConfig {
    unsigned blocks[3], threads[3], shared;
    Handle stream;
};

Code cuLaunchKernelEx(const struct LaunchConfig *config, Handle function, void **arguments, void **extra) {
    typedef Code LaunchEx(const struct LaunchConfig *, Handle, void **, void **);
    pthread_mutex_lock(&lock);
    timed_begin(function, config->stream);
    Code code = REAL(LaunchEx *, "cuLaunchKernelEx")(config, function, arguments, extra);
    timed_end(config->stream);
    pthread_mutex_unlock(&lock);
    return code;
}

// The runtime asks for functions by name, also for those above.
Code cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long flags, int *status) {
    typedef Code GetProcAddress(const char *, void **, int, unsigned long, int *);
    Code code = REAL(GetProcAddress *, "cuGetProcAddress_v2")(name, function, version, flags, status);
    if (code == 0 && !strcmp(name, "cuLaunchKernel")) *function = (void *)cuLaunchKernel;
    if (code == 0 && !strcmp(name, "cuLaunchKernelEx")) *function = (void *)cuLaunchKernelEx;
    if (code == 0 && !strcmp(name, "cuGetProcAddress")) *function = (void *)cuGetProcAddress_v2;
    return code;
}
