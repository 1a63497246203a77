// How kernels share work among threads: a single kernel, or a recorded step of many kernels during which
// the threads stay awake. Waking a thread takes longer than most kernels of a decode step, so within a
// step the threads spin while they wait for each other.

#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <vector>

#include <omp.h>

struct Range {
    long begin, end;
};

// One thread of those that share a task, or one part of a task.
struct Team {
    int me, size;

    // Its share of 0..count; shares begin at multiples of `grain`.
    Range share(long count, long grain) const {
        long grains = (count + grain - 1) / grain;
        return {grains * me / size * grain, std::min(count, grains * (me + 1) / size * grain)};
    }
};

// A task, and roughly how many multiplications it takes now.
struct Work {
    std::function<double()> cost;
    std::function<void(Team)> part;
};

// Progress on one task: how many parts have been taken and how many are done.
struct Progress {
    std::atomic<int> taken{0}, done{0};
    int parts = 1;
};

// Kernels in the order of their calls, each with its arguments.
struct Tape {
    std::vector<Work> works;
    std::vector<Progress> progress;  // of each call, while threads play the tape
};

// The tape on which this thread's calls are recorded; null if they are only made.
inline thread_local Tape* recording = nullptr;

// How many multiplications take as long as waking a thread, and as long as one wait between threads.
constexpr double WAKING = 1e6, WAITING = 5e4;

// How many threads to use, so that each has at least that much work.
inline int threads_for(double multiplications, double trouble, int most) {
    return std::clamp(static_cast<int>(multiplications / trouble), 1, most);
}

// Runs the task on at most so many threads.
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

// Waits until all parts are done. A thread sleeps if it waits long, as when another has lost its core.
inline void wait_for(const Progress& progress) {
    constexpr int SPINS = 2000;  // about tens of microseconds
    for (int spin = 0; spin < SPINS; ++spin) {
        if (progress.done.load(std::memory_order_acquire) == progress.parts) return;
        relax();
    }
    for (int seen; (seen = progress.done.load(std::memory_order_acquire)) < progress.parts;)
        progress.done.wait(seen, std::memory_order_acquire);
}

// One thread plays the tape. It takes parts as long as any are left, so the first thread waits neither
// for the others to wake up nor for one that has lost its core between two parts.
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
    constexpr double PART = 1e5;  // multiplications that justify a separate part
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
