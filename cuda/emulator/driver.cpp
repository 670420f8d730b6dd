// The functions of libcuda that the program calls, for GPUs that are not there: memory is the machine's, kernels run in
// the emulator, everything is done in the order of the calls. What was asked for is counted.
//
// EMULATED_GPUS     `24:8.6,80:9.0`: memory in GB and compute capability of each (default 24:8.6)
// EMULATED_DRIVER   the CUDA version that the driver runs: 13000
// EMULATED_SCHEDULE lockstep, random or warp (default: in turns)
// EMULATED_KERNELS  nothing: kernels are counted and not run
#include "emulator.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <dirent.h>
#include <dlfcn.h>
#include <sys/mman.h>

using emulator::Index;
using emulator::Schedule;

namespace {

enum Code { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NOT_FOUND = 500, NOT_READY = 600 };

struct Kernel {
    const char *name;
    void (*call)(void **arguments);
};

struct Function {
    Kernel kernel;
    char *shared_begin, *shared_end;
    unsigned long launches;
};

struct Gpu {
    size_t total, taken;
    int major, minor;
};

struct Room {
    size_t bytes, mapped;
    Gpu *gpu;
};

// A copy from or to pinned memory; the program must not touch that memory before it has waited.
struct Transfer {
    void *host;
    std::vector<char> data;
    bool is_download;
    unsigned long number;
};

// What a program waits for: all transfers up to this one.
struct Event {
    unsigned long number;
    std::chrono::steady_clock::time_point time;
};

// In the order of `emulator_counts`.
struct Counts {
    unsigned long launches, allocations, frees, uploads, downloads, copies, fills, synchronizations, modules, lookups, unpinned;
} counts;

constexpr size_t GUARD = 256;
constexpr unsigned char POISON = 0xff;

// Never destroyed: threads of a program may still free memory while it ends.
std::mutex &lock = *new std::mutex;
std::vector<Gpu> &gpus = *new std::vector<Gpu>;
std::unordered_map<std::string, Function> &functions = *new std::unordered_map<std::string, Function>;
std::map<uintptr_t, Room> &rooms = *new std::map<uintptr_t, Room>;
std::map<uintptr_t, size_t> &pinned = *new std::map<uintptr_t, size_t>;
std::vector<Transfer> &transfers = *new std::vector<Transfer>;
unsigned long last_transfer;
thread_local Gpu *current;
bool runs_kernels = true;
int schedule = -1;

void open_kernels() {
    Dl_info info;
    dladdr((void *)open_kernels, &info);
    // The kernels lie beside the file, also where it is found by a link.
    char *file = realpath(info.dli_fname, nullptr);
    std::string folder = file ? file : info.dli_fname;
    std::free(file);
    folder = folder.substr(0, folder.rfind('/'));
    DIR *entries = opendir(folder.c_str());
    if (!entries) return;
    while (dirent *entry = readdir(entries)) {
        std::string name = entry->d_name;
        if (name.rfind("kernels-", 0) != 0 || name.rfind(".so") + 3 != name.size()) continue;
        void *library = dlopen((folder + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            std::fprintf(stderr, "%s\n", dlerror());
            std::abort();
        }
        const Kernel *kernel = (const Kernel *)dlsym(library, "emulated_kernels");
        char *(*shared)(int) = (char *(*)(int))dlsym(library, "emulated_shared");
        for (; kernel->name; kernel++) functions[kernel->name] = Function{*kernel, shared(0), shared(1), 0};
    }
    closedir(entries);
}

void set_up() {
    static std::once_flag once;
    std::call_once(once, [] {
        const char *wanted = std::getenv("EMULATED_GPUS");
        std::string text = wanted ? wanted : "24:8.6";
        for (size_t at = 0; at < text.size();) {
            size_t end = std::min(text.find(',', at), text.size());
            double gigabytes;
            int major, minor;
            if (std::sscanf(text.substr(at, end - at).c_str(), "%lf:%d.%d", &gigabytes, &major, &minor) == 3)
                // A context takes its part, as on a real one.
                gpus.push_back({(size_t)(gigabytes * 1e9), (size_t)400 << 20, major, minor});
            at = end + 1;
        }
        const char *kernels = std::getenv("EMULATED_KERNELS");
        runs_kernels = !kernels || std::strcmp(kernels, "nothing") != 0;
        const char *order = std::getenv("EMULATED_SCHEDULE");
        if (order) schedule = !std::strcmp(order, "lockstep") ? 0 : !std::strcmp(order, "random") ? 1 : 2;
        open_kernels();
    });
}

int number_of(const char *name, int usual) {
    const char *text = std::getenv(name);
    return text ? std::atoi(text) : usual;
}

// Behind each allocation lies a guard, which kernels must not touch.
int allocate(uintptr_t *address, size_t bytes) {
    std::lock_guard<std::mutex> held(lock);
    if (!current) return INVALID_CONTEXT;
    if (bytes == 0) return INVALID_VALUE;
    if (current->taken + bytes > current->total) return OUT_OF_MEMORY;
    size_t mapped = (bytes + GUARD + 4095) / 4096 * 4096;
    char *room = (char *)mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return OUT_OF_MEMORY;
    // Memory that nobody will touch whole is not poisoned.
    if (bytes <= (size_t)64 << 20) std::memset(room, POISON, bytes);
    std::memset(room + bytes, POISON, GUARD);
    current->taken += bytes;
    rooms[(uintptr_t)room] = {bytes, mapped, current};
    counts.allocations++;
    *address = (uintptr_t)room;
    return SUCCESS;
}

int release(uintptr_t address) {
    std::lock_guard<std::mutex> held(lock);
    auto found = rooms.find(address);
    if (found == rooms.end()) return INVALID_VALUE;
    const unsigned char *guard = (const unsigned char *)address + found->second.bytes;
    for (size_t i = 0; i < GUARD; i++)
        if (guard[i] != POISON) {
            std::fprintf(stderr, "%zu bytes after an allocation of %zu were written\n", i + 1, found->second.bytes);
            std::abort();
        }
    found->second.gpu->taken -= found->second.bytes;
    munmap((void *)address, found->second.mapped);
    rooms.erase(found);
    counts.frees++;
    return SUCCESS;
}

// Whether these bytes lie in one allocation.
bool holds(uintptr_t address, size_t bytes) {
    std::lock_guard<std::mutex> held(lock);
    auto after = rooms.upper_bound(address);
    if (after == rooms.begin()) return false;
    auto &[begin, room] = *--after;
    return address + bytes <= begin + room.bytes;
}

bool is_pinned(const void *host, size_t bytes) {
    auto after = pinned.upper_bound((uintptr_t)host);
    if (after == pinned.begin()) return false;
    auto &[begin, size] = *--after;
    return (uintptr_t)host + bytes <= begin + size;
}

// Nothing of this program's is on its way to or from these bytes.
void must_rest(const void *host, size_t bytes) {
    for (auto &transfer : transfers)
        if ((char *)transfer.host < (char *)host + bytes && (char *)host < (char *)transfer.host + transfer.data.size()) {
            std::fprintf(stderr, "pinned memory is used while a copy of %zu bytes is on its way\n", transfer.data.size());
            std::abort();
        }
}

// Ends the transfers up to this one: bytes that were to be copied are still there, and those that were copied come.
void complete(unsigned long number) {
    std::lock_guard<std::mutex> held(lock);
    std::erase_if(transfers, [&](Transfer &transfer) {
        if (transfer.number > number) return false;
        if (transfer.is_download) std::memcpy(transfer.host, transfer.data.data(), transfer.data.size());
        if (std::memcmp(transfer.host, transfer.data.data(), transfer.data.size()) != 0) {
            std::fprintf(stderr, "pinned memory was written before its copy of %zu bytes was done\n", transfer.data.size());
            std::abort();
        }
        return true;
    });
}

void fill(uintptr_t address, unsigned char value, size_t bytes) {
    // Pages that were never touched are zeros.
    uintptr_t first = (address + 4095) / 4096 * 4096, last = (address + bytes) / 4096 * 4096;
    if (value == 0 && bytes > (size_t)64 << 20) {
        madvise((void *)first, last - first, MADV_DONTNEED);
        std::memset((void *)address, 0, first - address);
        std::memset((void *)last, 0, address + bytes - last);
    } else {
        std::memset((void *)address, value, bytes);
    }
}

}  // namespace

#define CALL extern "C" int

// What was asked for since the last call, in the order of `Counts`.
extern "C" void emulator_counts(unsigned long *to) {
    std::lock_guard<std::mutex> held(lock);
    std::memcpy(to, &counts, sizeof counts);
    counts = Counts{};
}

// Prints the kernels that were launched, and how often.
extern "C" void emulator_print_launches() {
    std::lock_guard<std::mutex> held(lock);
    for (auto &[name, function] : functions) {
        if (function.launches) std::printf("%6lu %s\n", function.launches, name.c_str());
        function.launches = 0;
    }
}

CALL cuInit(unsigned) { set_up(); return gpus.empty() ? NO_DEVICE : SUCCESS; }
CALL cuDriverGetVersion(int *version) { *version = number_of("EMULATED_DRIVER", 13000); return SUCCESS; }
CALL cuDeviceGetCount(int *count) { set_up(); *count = gpus.size(); return SUCCESS; }
CALL cuDeviceGet(int *device, int index) {
    set_up();
    *device = index;
    return index >= 0 && (size_t)index < gpus.size() ? SUCCESS : INVALID_DEVICE;
}
CALL cuDeviceGetName(char *name, int size, int) { std::snprintf(name, size, "Emulated GPU"); return SUCCESS; }
CALL cuDeviceGetUuid_v2(void *uuid, int device) { std::memset(uuid, device + 1, 16); return SUCCESS; }
CALL cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = gpus[device].total; return SUCCESS; }
CALL cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
    case 1: *value = 1024; break;                   // threads of a block
    case 8: *value = 48 << 10; break;               // shared memory of a block
    case 10: *value = 32; break;                    // threads of a warp
    case 16: *value = 82; break;                    // multiprocessors
    case 39: *value = 1536; break;                  // threads of a multiprocessor
    case 75: *value = gpus[device].major; break;
    case 76: *value = gpus[device].minor; break;
    case 81: *value = 100 << 10; break;             // shared memory of a multiprocessor
    case 97: *value = 99 << 10; break;              // shared memory of a block that asks for more
    case 115: *value = 1; break;                    // memory pools
    default: *value = 0;
    }
    return SUCCESS;
}
CALL cuDevicePrimaryCtxRetain(void **context, int device) { *context = &gpus[device]; return SUCCESS; }
CALL cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
CALL cuDeviceGetDefaultMemPool(void **pool, int device) { *pool = &gpus[device]; return SUCCESS; }
CALL cuMemPoolSetAttribute(void *, int, void *) { return SUCCESS; }
CALL cuMemPoolTrimTo(void *, size_t) { return SUCCESS; }
CALL cuCtxSetCurrent(void *context) { current = (Gpu *)context; return SUCCESS; }
CALL cuCtxGetCurrent(void **context) { *context = current; return SUCCESS; }
CALL cuCtxSynchronize() { counts.synchronizations++; complete(last_transfer); return SUCCESS; }
CALL cuStreamCreate(void **stream, unsigned) { *stream = (void *)16; return SUCCESS; }
CALL cuStreamDestroy_v2(void *) { return SUCCESS; }
CALL cuStreamSynchronize(void *) { counts.synchronizations++; complete(last_transfer); return SUCCESS; }
CALL cuStreamWaitEvent(void *, void *, unsigned) { return SUCCESS; }
CALL cuStreamIsCapturing(void *, int *status) { *status = 0; return SUCCESS; }
CALL cuEventCreate(void **event, unsigned) { *event = new Event{}; return SUCCESS; }
CALL cuEventRecord(void *event, void *) { *(Event *)event = {last_transfer, std::chrono::steady_clock::now()}; return SUCCESS; }
CALL cuEventSynchronize(void *event) { complete(((Event *)event)->number); return SUCCESS; }
// No copy is done before somebody waits for it.
CALL cuEventQuery(void *event) {
    std::lock_guard<std::mutex> held(lock);
    for (auto &transfer : transfers)
        if (transfer.number <= ((Event *)event)->number) return NOT_READY;
    return SUCCESS;
}
CALL cuEventElapsedTime(float *milliseconds, void *begin, void *end) {
    *milliseconds = std::chrono::duration<float, std::milli>(((Event *)end)->time - ((Event *)begin)->time).count();
    return SUCCESS;
}
CALL cuEventDestroy_v2(void *event) { delete (Event *)event; return SUCCESS; }

CALL cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    if (!current) return INVALID_CONTEXT;
    *free_bytes = current->total - current->taken;
    *total = current->total;
    return SUCCESS;
}
CALL cuMemAlloc_v2(uintptr_t *address, size_t bytes) { return allocate(address, bytes); }
CALL cuMemAllocAsync(uintptr_t *address, size_t bytes, void *) { return allocate(address, bytes); }
CALL cuMemFree_v2(uintptr_t address) { return release(address); }
CALL cuMemFreeAsync(uintptr_t address, void *) { return release(address); }
CALL cuMemHostAlloc(void **address, size_t bytes, unsigned) {
    *address = std::malloc(bytes);
    if (!*address) return OUT_OF_MEMORY;
    std::memset(*address, POISON, bytes);
    std::lock_guard<std::mutex> held(lock);
    pinned[(uintptr_t)*address] = bytes;
    return SUCCESS;
}
CALL cuMemFreeHost(void *address) {
    std::lock_guard<std::mutex> held(lock);
    must_rest(address, pinned[(uintptr_t)address]);
    pinned.erase((uintptr_t)address);
    std::free(address);
    return SUCCESS;
}
CALL cuMemcpyHtoDAsync_v2(uintptr_t to, const void *from, size_t bytes, void *) {
    if (!holds(to, bytes)) return INVALID_VALUE;
    std::lock_guard<std::mutex> held(lock);
    counts.uploads++;
    std::memcpy((void *)to, from, bytes);
    if (!is_pinned(from, bytes)) {
        counts.unpinned++;
        return SUCCESS;
    }
    transfers.push_back({(void *)from, {(char *)from, (char *)from + bytes}, false, ++last_transfer});
    return SUCCESS;
}
CALL cuMemcpyHtoD_v2(uintptr_t to, const void *from, size_t bytes) {
    int code = cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr);
    complete(last_transfer);
    return code;
}
CALL cuMemcpyDtoHAsync_v2(void *to, uintptr_t from, size_t bytes, void *) {
    if (!holds(from, bytes)) return INVALID_VALUE;
    std::lock_guard<std::mutex> held(lock);
    counts.downloads++;
    if (!is_pinned(to, bytes)) {
        counts.unpinned++;
        std::memcpy(to, (const void *)from, bytes);
        return SUCCESS;
    }
    must_rest(to, bytes);
    transfers.push_back({to, {(char *)from, (char *)from + bytes}, true, ++last_transfer});
    std::memset(to, POISON, bytes);
    return SUCCESS;
}
CALL cuMemcpyDtoH_v2(void *to, uintptr_t from, size_t bytes) {
    int code = cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr);
    complete(last_transfer);
    return code;
}
CALL cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t bytes, void *) {
    if (!holds(to, bytes) || !holds(from, bytes)) return INVALID_VALUE;
    counts.copies++;
    std::memmove((void *)to, (const void *)from, bytes);
    return SUCCESS;
}
CALL cuMemcpyDtoD_v2(uintptr_t to, uintptr_t from, size_t bytes) { return cuMemcpyDtoDAsync_v2(to, from, bytes, nullptr); }
CALL cuMemsetD8Async(uintptr_t to, unsigned char value, size_t bytes, void *) {
    if (!holds(to, bytes)) return INVALID_VALUE;
    counts.fills++;
    fill(to, value, bytes);
    return SUCCESS;
}
CALL cuMemsetD8_v2(uintptr_t to, unsigned char value, size_t bytes) { return cuMemsetD8Async(to, value, bytes, nullptr); }

CALL cuModuleLoadData(void **module, const void *) { counts.modules++; *module = (void *)16; return SUCCESS; }
CALL cuModuleUnload(void *) { return SUCCESS; }
CALL cuModuleGetFunction(void **function, void *, const char *name) {
    std::lock_guard<std::mutex> held(lock);
    counts.lookups++;
    auto found = functions.find(name);
    if (found == functions.end()) {
        std::fprintf(stderr, "no kernel called %s is emulated\n", name);
        return NOT_FOUND;
    }
    *function = &found->second;
    return SUCCESS;
}
CALL cuFuncGetName(const char **name, void *function) { *name = ((Function *)function)->kernel.name; return SUCCESS; }
CALL cuFuncSetAttribute(void *, int, int) { return SUCCESS; }
CALL cuFuncGetAttribute(int *value, int, void *) { *value = 1024; return SUCCESS; }

CALL cuLaunchKernel(void *which, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x, unsigned threads_y,
                    unsigned threads_z, unsigned shared, void *, void **arguments, void **) {
    std::lock_guard<std::mutex> held(lock);
    Function &function = *(Function *)which;
    unsigned long threads = (unsigned long)threads_x * threads_y * threads_z;
    bool fits = blocks_x > 0 && blocks_y > 0 && blocks_z > 0 && blocks_y <= 65535 && blocks_z <= 65535 && threads > 0 &&
                threads <= 1024 && shared <= 48 << 10;
    if (!fits) return INVALID_VALUE;
    counts.launches++;
    function.launches++;
    if (!runs_kernels) return SUCCESS;
    static unsigned turn;
    turn++;
    Schedule order = (Schedule)(schedule >= 0 ? schedule : turn % 3);
    emulator::run_launch({function.kernel.name, function.kernel.call, arguments, {blocks_x, blocks_y, blocks_z},
                          {threads_x, threads_y, threads_z}, shared, function.shared_begin, function.shared_end},
                         order, turn);
    return SUCCESS;
}
CALL cuGetErrorName(int code, const char **name) { *name = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_EMULATOR"; return SUCCESS; }
CALL cuGetErrorString(int code, const char **text) { *text = code == OUT_OF_MEMORY ? "out of memory" : "the emulator refuses this"; return SUCCESS; }
