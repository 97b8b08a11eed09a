/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/soak/targets/server.cc - answers each line, a number, with its square, on a thread for each
 * client and out of strings, vectors and a map that the clients share; for programs.py.
 */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

static std::mutex lock;
static std::map<long long, std::shared_ptr<std::string>> known;

static std::string answer(long long n)
{
    std::vector<std::string> parts;
    for (int i = 0; i < 20; i++)
        parts.push_back(std::string(100 + static_cast<size_t>(n + i * 997) % 5000, 'x'));
    auto text = std::make_shared<std::string>(std::to_string(n * n));
    std::lock_guard<std::mutex> hold(lock);
    known[n % 1000] = text;
    if (parts.size() % 2)
        known.erase(n % 500);
    return *text + "\n";
}

static void serve(int client)
{
    std::string line;
    char part[4096];
    for (ssize_t n; (n = read(client, part, sizeof(part))) > 0;) {
        line.append(part, static_cast<size_t>(n));
        for (size_t end; (end = line.find('\n')) != std::string::npos; line.erase(0, end + 1)) {
            std::string said = answer(std::stoll(line.substr(0, end)));
            if (send(client, said.data(), said.size(), MSG_NOSIGNAL) < 0)
                break;
        }
    }
    close(client);
}

int main()
{
    int server = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at = {};
    socklen_t size = sizeof(at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(server, reinterpret_cast<sockaddr *>(&at), size) || listen(server, 100) ||
        getsockname(server, reinterpret_cast<sockaddr *>(&at), &size))
        return 1;
    std::printf("port %d\n", ntohs(at.sin_port));
    std::fflush(stdout);
    for (;;) {
        int client = accept(server, nullptr, nullptr);
        if (client < 0)
            return 2;
        std::thread(serve, client).detach();
    }
}
