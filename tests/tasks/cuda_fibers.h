// What a CUDA kernel's text needs in order to run on a CPU: the threads of a block are fibers that take turns in one
// thread of the system, blocks follow one another, and shared memory is static. Barriers and shuffles hand the turn on.
#include <ucontext.h>

#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

struct Index {
    unsigned x, y, z;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
using std::max;
using std::min;

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define threadIdx (fiber->place)
#define warpSize 32

enum State { READY, AT_BARRIER, IN_WARP, DONE };
struct Fiber {
    ucontext_t context;
    char* stack;
    State state;
    Index place;
    int number, turn;
};
static const size_t STACK = 1 << 16;
static std::vector<Fiber> fibers;
static Fiber* fiber;
static ucontext_t scheduler;
static Index blockIdx, blockDim, gridDim;
static double slots[2][1024];  // what the lanes show each other; two, since a fast lane may be one shuffle ahead
alignas(256) static char dynamic_shared[227 << 10];
static void (*kernel_body)();

static void wait_as(State state) {
    fiber->state = state;
    Fiber* self = fiber;
    swapcontext(&self->context, &scheduler);
}
static void __syncthreads() { wait_as(AT_BARRIER); }
static void __syncwarp(unsigned = ~0u) { wait_as(IN_WARP); }

template <class T> static T from_lane(T value, int lane) {
    int turn = fiber->turn ^= 1, number = fiber->number;
    memcpy(&slots[turn][number], &value, sizeof value);
    wait_as(IN_WARP);
    memcpy(&value, &slots[turn][number / 32 * 32 + lane], sizeof value);
    return value;
}
template <class T> static T __shfl_sync(unsigned, T value, int lane) { return from_lane(value, lane % 32); }
template <class T> static T __shfl_xor_sync(unsigned, T value, int mask) {
    return from_lane(value, fiber->number % 32 ^ mask);
}
template <class T> static T __shfl_down_sync(unsigned, T value, int by) {
    int lane = fiber->number % 32;
    return from_lane(value, lane + by < 32 ? lane + by : lane);
}
template <class T> static T __shfl_up_sync(unsigned, T value, int by) {
    int lane = fiber->number % 32;
    return from_lane(value, lane >= by ? lane - by : lane);
}
template <class T> static T atomicAdd(T* at, T value) {
    T old = *at;
    *at += value;
    return old;
}
static float4 atomicAdd(float4* at, float4 value) {
    float4 old = *at;
    *at = {old.x + value.x, old.y + value.y, old.z + value.z, old.w + value.w};
    return old;
}

static void enter() {
    kernel_body();
    wait_as(DONE);
}

static bool run_block(int count) {
    for (int t = 0; t < count; t++) {
        Fiber& f = fibers[t];
        f.state = READY;
        f.turn = 0;
        f.number = t;
        f.place = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack;
        f.context.uc_stack.ss_size = STACK;
        f.context.uc_link = &scheduler;
        makecontext(&f.context, enter, 0);
    }
    for (;;) {
        for (int t = 0; t < count; t++)
            if (fibers[t].state == READY) {
                fiber = &fibers[t];
                swapcontext(&scheduler, &fiber->context);
            }
        int done = 0, at_barrier = 0;
        bool released = false;
        for (int first = 0; first < count; first += 32) {
            int last = std::min(count, first + 32), in_warp = 0;
            for (int t = first; t < last; t++) {
                in_warp += fibers[t].state == IN_WARP;
                at_barrier += fibers[t].state == AT_BARRIER;
                done += fibers[t].state == DONE;
            }
            if (in_warp < last - first) continue;
            for (int t = first; t < last; t++) fibers[t].state = READY;
            released = true;
        }
        if (released) continue;
        if (done == count) return true;
        if (at_barrier < count) return false;  // some threads wait for others that never come
        for (int t = 0; t < count; t++) fibers[t].state = READY;
    }
}

// Whether every block came to its end.
static bool run_grid(Index grid, Index block, void (*body)()) {
    gridDim = grid;
    blockDim = block;
    kernel_body = body;
    unsigned count = block.x * block.y * block.z;
    while (fibers.size() < count) fibers.push_back({{}, (char*)malloc(STACK), DONE, {}, 0, 0});
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                blockIdx = {x, y, z};
                memset(dynamic_shared, 0xff, sizeof dynamic_shared);  // NaN: contents are not carried over
                if (!run_block(count)) return false;
            }
    return true;
}
