// A libnvidia-ml.so.1 for the GPUs of `driver.cpp`: as much of it as the program asks for.
//
// EMULATED_DRIVER_VERSION   580.95.05
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Gpu {
    double gigabytes;
    int major, minor;
};

const std::vector<Gpu> &gpus() {
    static const std::vector<Gpu> all = [] {
        std::vector<Gpu> found;
        const char *wanted = std::getenv("EMULATED_GPUS");
        std::string text = wanted ? wanted : "24:8.6";
        for (size_t at = 0; at < text.size();) {
            size_t end = std::min(text.find(',', at), text.size());
            Gpu gpu;
            if (std::sscanf(text.substr(at, end - at).c_str(), "%lf:%d.%d", &gpu.gigabytes, &gpu.major, &gpu.minor) == 3)
                found.push_back(gpu);
            at = end + 1;
        }
        return found;
    }();
    return all;
}

const Gpu *of(void *device) { return &gpus()[(size_t)device - 1]; }

struct Memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct Utilization {
    unsigned gpu, memory;
};

enum Code { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3 };

}  // namespace

#define CALL extern "C" int

CALL nvmlInit_v2() { return SUCCESS; }
CALL nvmlInitWithFlags(unsigned) { return SUCCESS; }
CALL nvmlShutdown() { return SUCCESS; }
CALL nvmlDeviceGetCount_v2(unsigned *count) { *count = gpus().size(); return SUCCESS; }
CALL nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(size_t)(index + 1);
    return index < gpus().size() ? SUCCESS : INVALID_ARGUMENT;
}
CALL nvmlDeviceGetName(void *, char *name, unsigned size) { std::snprintf(name, size, "Emulated GPU"); return SUCCESS; }
CALL nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
    std::snprintf(uuid, size, "GPU-%08zx-0000-0000-0000-000000000000", (size_t)device);
    return SUCCESS;
}
CALL nvmlDeviceGetMemoryInfo_v2(void *device, Memory *memory) {
    memory->total = (unsigned long long)(of(device)->gigabytes * 1e9);
    memory->reserved = 0;
    memory->used = 1 << 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}
CALL nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    *major = of(device)->major;
    *minor = of(device)->minor;
    return SUCCESS;
}
CALL nvmlDeviceGetUtilizationRates(void *, Utilization *rates) { *rates = {0, 0}; return SUCCESS; }
CALL nvmlSystemGetDriverVersion(char *version, unsigned size) {
    const char *wanted = std::getenv("EMULATED_DRIVER_VERSION");
    std::snprintf(version, size, "%s", wanted ? wanted : "580.95.05");
    return SUCCESS;
}
CALL nvmlSystemGetCudaDriverVersion(int *version) {
    const char *wanted = std::getenv("EMULATED_DRIVER");
    *version = wanted ? std::atoi(wanted) : 13000;
    return SUCCESS;
}
CALL nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }
CALL nvmlDeviceGetPowerUsage(void *, unsigned *) { return NOT_SUPPORTED; }
CALL nvmlDeviceGetEnforcedPowerLimit(void *, unsigned *) { return NOT_SUPPORTED; }
CALL nvmlDeviceGetTemperature(void *, int, unsigned *) { return NOT_SUPPORTED; }
