/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/soak/targets/server.rs - answers each line, a number, with its square; for programs.py.
 */
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

fn serve(mut stream: TcpStream) {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        let n: i64 = line.trim().parse().unwrap();
        if writeln!(stream, "{}", n * n).is_err() {
            return;
        }
    }
}

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("port {}", listener.local_addr().unwrap().port());
    for stream in listener.incoming().map_while(Result::ok) {
        thread::spawn(move || serve(stream));
    }
}
