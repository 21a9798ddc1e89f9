// What the drivers that are not there read beside their library.
//
// Settings come from the environment, or as lines NAME=VALUE from a file `settings`, as a confined
// process has no environment.
#pragma once

#include <dlfcn.h>
#include <stdlib.h>

#include <fstream>
#include <string>

// The path of a file in the folder of this library.
static inline std::string beside(const char* name) {
    Dl_info info;
    if (dladdr(reinterpret_cast<void*>(&beside), &info) == 0) return name;
    std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/') + 1) + name;
}

static inline long long setting(const char* name, long long otherwise) {
    if (const char* text = getenv(name)) return atoll(text);
    std::ifstream lines(beside("settings"));
    std::string line, start = std::string(name) + "=";
    while (std::getline(lines, line)) {
        if (line.compare(0, start.size(), start) == 0) return atoll(line.c_str() + start.size());
    }
    return otherwise;
}
