/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/soak/targets/server.go - answers each line, a number, with its square; for programs.py.
 *
 * With cgo, or it would be statically linked.  The runtime has a handler on every signal, and some
 * are waited for here.  A goroutine makes faults that it recovers from.
 */
package main

// #include <unistd.h>
import "C"

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func serve(c net.Conn) {
	defer c.Close()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		var n int64
		fmt.Sscan(lines.Text(), &n)
		fmt.Fprintln(c, n*n)
	}
}

func fault() {
	defer func() {
		if recover() == nil {
			os.Exit(3)
		}
	}()
	var nowhere *int
	*nowhere = 1
}

func main() {
	C.getpid()
	come := make(chan os.Signal, 64)
	signal.Notify(come, syscall.SIGUSR1, syscall.Signal(62), syscall.Signal(63))
	go func() {
		for s := range come {
			fmt.Println("got", int(s.(syscall.Signal)))
		}
	}()
	go func() {
		for x := 0; ; x++ {
			if x%1000000 == 0 {
				fault()
				time.Sleep(time.Millisecond)
			}
		}
	}()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		os.Exit(2)
	}
	fmt.Println("port", l.Addr().(*net.TCPAddr).Port)
	for {
		if c, err := l.Accept(); err == nil {
			go serve(c)
		}
	}
}
