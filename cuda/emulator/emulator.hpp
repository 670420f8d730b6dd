// Between `driver.cpp`, which launches kernels, and `emulator.cpp`, which runs them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulator {

struct Index {
    unsigned x, y, z;
};

enum class Schedule { Lockstep, Random, OneWarp };

struct Launch {
    const char *name;
    void (*call)(void **arguments);
    void **arguments;
    Index blocks, threads;
    size_t dynamic_shared;
    // The shared memory of all kernels of its library.
    char *shared_begin, *shared_end;
};

void run_launch(const Launch &launch, Schedule schedule, unsigned seed);

}  // namespace emulator
