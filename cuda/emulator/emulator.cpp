// Runs the blocks of a kernel one after the other: a fiber for each thread, in an order that a schedule chooses. A
// barrier that is missing shows in some schedule: all threads in turn, any thread that can run, or one warp as far as it
// gets.
#include "emulator.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include <sys/mman.h>

extern "C" {
emulator::Index emulator_thread, emulator_block, emulator_threads, emulator_blocks;
void emulator_switch(void **leave, void *enter);
}

// Keeps what a call must keep, on the stack that is left.
asm(".text\n"
    ".globl emulator_switch\n"
    ".type emulator_switch, @function\n"
    "emulator_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n");

namespace emulator {
namespace {

constexpr size_t STACK = 256 << 10;
constexpr unsigned WARP = 32, MOST_LANES = 32, ROOM = 64;

enum class State { Runs, AtBarrier, InExchange, Ended };

struct Fiber {
    char *stack;
    void *at;
    State state;
    Index thread;
};

struct Warp {
    unsigned alive, given;
    alignas(16) char mine[MOST_LANES * ROOM], results[MOST_LANES * ROOM];
};

// Never destroyed: threads of a program may still launch kernels while it ends.
std::vector<Fiber> &fibers = *new std::vector<Fiber>;
std::vector<Warp> &warps = *new std::vector<Warp>;
unsigned running, alive, at_barrier, count;
void *scheduler;
const Launch *launched;
std::vector<char> &dynamic_shared = *new std::vector<char>;
std::mt19937 random_numbers;

void wait_as(State state) {
    fibers[running].state = state;
    unsigned self = running;
    emulator_switch(&fibers[self].at, scheduler);
    emulator_thread = fibers[self].thread;
}

void open_barrier() {
    at_barrier = 0;
    for (Fiber &fiber : fibers)
        if (fiber.state == State::AtBarrier) fiber.state = State::Runs;
}

void thread_body() {
    launched->call(launched->arguments);
    Fiber &self = fibers[running];
    self.state = State::Ended;
    warps[running / WARP].alive--;
    if (--alive > 0 && at_barrier == alive) open_barrier();
    emulator_switch(&self.at, scheduler);
}

void make(Fiber &fiber, unsigned id) {
    if (!fiber.stack) {
        fiber.stack = (char *)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (fiber.stack == MAP_FAILED) std::abort();
    }
    fiber.state = State::Runs;
    fiber.thread = {id % emulator_threads.x, id / emulator_threads.x % emulator_threads.y,
                    id / emulator_threads.x / emulator_threads.y};
    void **top = (void **)(fiber.stack + STACK);
    *--top = nullptr;  // where `thread_body` never returns to
    *--top = (void *)thread_body;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    fiber.at = top;
}

void run(unsigned id) {
    running = id;
    emulator_thread = fibers[id].thread;
    emulator_switch(&scheduler, fibers[id].at);
}

bool runs(unsigned id) { return fibers[id].state == State::Runs; }

// The next thread to run, or `count` if none can.
unsigned next_after(unsigned last) {
    for (unsigned i = 1; i <= count; i++)
        if (unsigned id = (last + i) % count; runs(id)) return id;
    return count;
}

unsigned choose(Schedule schedule, unsigned last) {
    switch (schedule) {
    case Schedule::Lockstep: return next_after(last);
    case Schedule::Random: return next_after(random_numbers() % count);
    case Schedule::OneWarp:
        for (unsigned id = last / WARP * WARP; id < std::min(count, last / WARP * WARP + WARP); id++)
            if (runs(id)) return id;
        return next_after(random_numbers() % count);
    }
    return count;
}

void run_block(Schedule schedule) {
    // NaN, whatever a kernel reads before it writes it.
    std::memset(launched->shared_begin, 0xff, launched->shared_end - launched->shared_begin);
    dynamic_shared.assign(launched->dynamic_shared + 16, (char)0xff);
    alive = count;
    at_barrier = 0;
    for (unsigned id = 0; id < count; id++) make(fibers[id], id);
    for (unsigned warp = 0; warp * WARP < count; warp++) {
        warps[warp].alive = std::min(WARP, count - warp * WARP);
        warps[warp].given = 0;
    }
    unsigned last = count - 1;
    while (alive > 0) {
        last = choose(schedule, last);
        if (last == count) {
            std::fprintf(stderr, "kernel %s: threads wait at different places\n", launched->name);
            std::abort();
        }
        run(last);
    }
}

}  // namespace

void run_launch(const Launch &launch, Schedule schedule, unsigned seed) {
    launched = &launch;
    random_numbers.seed(seed);
    emulator_threads = launch.threads;
    emulator_blocks = launch.blocks;
    count = launch.threads.x * launch.threads.y * launch.threads.z;
    if (fibers.size() < count) fibers.resize(count, Fiber{nullptr, nullptr, State::Ended, {}});
    for (Fiber &fiber : fibers) fiber.state = State::Ended;
    warps.resize((count + WARP - 1) / WARP);
    Index &block = emulator_block;
    for (block.z = 0; block.z < launch.blocks.z; block.z++)
        for (block.y = 0; block.y < launch.blocks.y; block.y++)
            for (block.x = 0; block.x < launch.blocks.x; block.x++) run_block(schedule);
}

}  // namespace emulator

using namespace emulator;

extern "C" {

unsigned emulator_lane() { return running % WARP; }

void *emulator_dynamic_shared() { return (void *)(((uintptr_t)dynamic_shared.data() + 15) / 16 * 16); }

void emulator_barrier() {
    if (++at_barrier == alive) {
        // The last to come waits its turn as well.
        fibers[running].state = State::AtBarrier;
        open_barrier();
        wait_as(State::Runs);
    } else {
        wait_as(State::AtBarrier);
    }
}

void emulator_exchange(const void *mine, unsigned bytes, void *result, unsigned result_bytes,
                       void (*all)(const void *, void *, unsigned, const void *), const void *how) {
    unsigned self = running, first = self / WARP * WARP, lanes = std::min(WARP, count - first);
    Warp &warp = warps[self / WARP];
    std::memcpy(warp.mine + ROOM * (self - first), mine, bytes);
    if (++warp.given == warp.alive) {
        warp.given = 0;
        all(warp.mine, warp.results, lanes, how);
        for (unsigned id = first; id < first + lanes; id++)
            if (fibers[id].state == State::InExchange) fibers[id].state = State::Runs;
    } else {
        wait_as(State::InExchange);
    }
    std::memcpy(result, warp.results + ROOM * (self - first), result_bytes);
}
}
