// How kernels share their work among threads: one kernel by itself, or a recorded step of many
// kernels played without letting the threads go between them. Waking a sleeping thread takes longer
// than most kernels of a decode step; within a step they wait for one another spinning.

#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <vector>

#include <omp.h>

struct Range {
    long begin, end;
};

// One of the threads that do a work, or one of the parts that it is cut into.
struct Team {
    int me, size;

    // Its part of 0..count, which is cut at multiples of `grain`.
    Range share(long count, long grain) const {
        long grains = (count + grain - 1) / grain;
        return {grains * me / size * grain, std::min(count, grains * (me + 1) / size * grain)};
    }
};

// Something to do, and about how many multiplications that takes now.
struct Work {
    std::function<double()> cost;
    std::function<void(Team)> part;
};

// How far the threads are with one work: parts that are taken, and parts that are done.
struct Progress {
    std::atomic<int> taken{0}, done{0};
    int parts = 1;
};

// Kernels in the order of their calls, each with its arguments.
struct Tape {
    std::vector<Work> works;
    std::vector<Progress> progress;  // of each, while threads play it
};

// Where calls of this thread are recorded, beside being made; null: nowhere.
inline thread_local Tape* recording = nullptr;

// What could be multiplied while a thread wakes up, and while threads wait for each other's parts.
constexpr double WAKING = 1e6, WAITING = 5e4;

// As many threads as have that much to do each, to be worth the trouble.
inline int threads_for(double multiplications, double trouble, int most) {
    return std::clamp(static_cast<int>(multiplications / trouble), 1, most);
}

// Does the work with at most so many threads.
template <class Cost, class Part>
void run(int threads, Cost cost, Part part) {
    if (recording) recording->works.push_back({cost, part});
    int used = threads == 1 ? 1 : threads_for(cost(), WAKING, threads);
    if (used == 1) return part(Team{0, 1});
#pragma omp parallel num_threads(used)
    part(Team{omp_get_thread_num(), omp_get_num_threads()});
}

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Until all parts are done. A thread that waits for long, since another one has lost its core, sleeps.
inline void wait_for(const Progress& progress) {
    constexpr int SPINS = 2000;  // tens of microseconds
    for (int spin = 0; spin < SPINS; ++spin) {
        if (progress.done.load(std::memory_order_acquire) == progress.parts) return;
        relax();
    }
    for (int seen; (seen = progress.done.load(std::memory_order_acquire)) < progress.parts;)
        progress.done.wait(seen, std::memory_order_acquire);
}

// One thread's way through the tape. It takes part after part as long as there are any, so the first
// one need not wait until the others are awake, nor for one that has lost its core between two parts.
inline void play_along(Tape& tape) {
    for (size_t at = 0; at < tape.works.size(); ++at) {
        Progress& progress = tape.progress[at];
        for (int part; (part = progress.taken.fetch_add(1)) < progress.parts;) {
            tape.works[at].part(Team{part, progress.parts});
            progress.done.fetch_add(1, std::memory_order_acq_rel);
            progress.done.notify_all();
        }
        wait_for(progress);
    }
}

inline void play(Tape& tape, int threads) {
    constexpr double PART = 1e5;  // multiplications that are worth a part of their own
    if (tape.progress.size() != tape.works.size())
        tape.progress = std::vector<Progress>(tape.works.size());
    double total = 0;
    for (size_t at = 0; at < tape.works.size(); ++at) {
        double cost = tape.works[at].cost();
        total += cost;
        Progress& progress = tape.progress[at];
        progress.taken = progress.done = 0;
        progress.parts = std::clamp(static_cast<int>(cost / PART), 1, 4 * threads);
    }
    int used = threads_for(total, WAKING + tape.works.size() * WAITING, threads);
    if (used == 1) {
        for (const Work& work : tape.works) work.part(Team{0, 1});
        return;
    }
#pragma omp parallel num_threads(used)
    play_along(tape);
}
