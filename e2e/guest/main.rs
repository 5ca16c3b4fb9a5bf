//! What runs in the pods of the tests: one static program, told what to do by its first argument.
//!
//! - `pause` waits for ever, as the first container of a pod does.
//! - `serve PORT` answers each HTTP request with the name of the host.
//! - `forward PORT ADDRESS` passes each connection on to a server elsewhere.
//! - `get HOST PORT` asks that, tries again for a while, and prints the answer.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long `get` tries: names and addresses of services take a moment to be known.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["pause"] => loop {
            std::thread::park();
        },
        ["serve", port] => serve(port),
        ["forward", port, address] => forward(port, address),
        ["get", host, port] => get(host, port),
        _ => Err(std::io::Error::other("usage: pause | serve PORT | forward PORT ADDRESS | get HOST PORT")),
    };
    if let Err(error) = done {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn serve(port: &str) -> std::io::Result<()> {
    let name = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let name = name.trim();
    let listener = TcpListener::bind(format!("0.0.0.0:{port}"))?;
    println!("serving on {port}");
    for stream in listener.incoming() {
        let mut stream = stream?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        // Whoever goes away early harms nobody but itself.
        let mut request = [0; 4096];
        let _ = stream.read(&mut request);
        let _ = write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
    }
    Ok(())
}

fn forward(port: &str, address: &str) -> std::io::Result<()> {
    let listener = TcpListener::bind(format!("0.0.0.0:{port}"))?;
    println!("forwarding {port} to {address}");
    for stream in listener.incoming() {
        let (from, to) = (stream?, TcpStream::connect(address)?);
        for (mut from, mut to) in [(from.try_clone()?, to.try_clone()?), (to, from)] {
            std::thread::spawn(move || {
                // Whoever hangs up ends it for both.
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Both);
            });
        }
    }
    Ok(())
}

fn get(host: &str, port: &str) -> std::io::Result<()> {
    let begun = Instant::now();
    loop {
        match ask(host, port) {
            Ok(answer) => {
                println!("{answer}");
                return Ok(());
            }
            Err(error) if begun.elapsed() > PATIENCE => return Err(error),
            Err(error) => eprintln!("{host}: {error}; trying again"),
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

fn ask(host: &str, port: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(format!("{host}:{port}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET / HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    body.ok_or_else(|| std::io::Error::other("not an answer"))
}
