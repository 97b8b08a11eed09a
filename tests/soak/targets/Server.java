/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/soak/targets/Server.java - answers each line, a number, with its square; for programs.py.
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

class Server {
    static void serve(Socket socket) {
        try (socket) {
            var in = new BufferedReader(new InputStreamReader(socket.getInputStream()));
            for (String line; (line = in.readLine()) != null; ) {
                long n = Long.parseLong(line);
                socket.getOutputStream().write((n * n + "\n").getBytes());
            }
        } catch (java.io.IOException e) {
            System.out.println(e);
        }
    }

    public static void main(String[] words) throws Exception {
        var server = new ServerSocket(0, 64, InetAddress.getLoopbackAddress());
        System.out.println("port " + server.getLocalPort());
        for (;;) {
            Socket socket = server.accept();
            new Thread(() -> serve(socket)).start();
        }
    }
}
