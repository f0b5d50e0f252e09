//! HTTP over TLS with certificates of our own, and through a proxy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use posthaste_core::publisher::{ErrorKind, Outcome};
use posthaste_publishers::http::{HttpOptions, HttpPublisher};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::receiver::Receiver;
use crate::support::{message, publish};

/// An authority, a server that it vouches for and a client that it vouches for, as files.
struct Certificates {
    directory: TempDir,
    server: ServerConfig,
}

impl Certificates {
    fn new() -> Self {
        let mut of_authority = CertificateParams::new([]).unwrap();
        of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(of_authority, KeyPair::generate().unwrap()).unwrap();
        let issue = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new([name.to_owned()]).unwrap();
            (params.signed_by(&key, &authority).unwrap(), key)
        };
        let (server, server_key) = issue("127.0.0.1");
        let (client, client_key) = issue("posthaste");
        let directory = TempDir::new().unwrap();
        let write = |name: &str, text: String| std::fs::write(directory.path().join(name), text).unwrap();
        write("ca.pem", authority.pem());
        write("client.pem", client.pem());
        write("client.key", client_key.serialize_pem());
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .unwrap();
        let chain: Vec<CertificateDer<'static>> = vec![server.der().clone()];
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, PrivateKeyDer::try_from(server_key.serialize_der()).unwrap())
            .unwrap();
        Self { directory, server }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Answers every request with 204, to clients that have a certificate only.
async fn serve_tls(config: ServerConfig) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut read = vec![0; 64 * 1024];
                while stream.read(&mut read).await.is_ok_and(|count| count > 0) {
                    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_receiver_that_asks_for_a_certificate_is_shown_one() {
    let certificates = Certificates::new();
    let address = serve_tls(certificates.server.clone()).await;
    let options = |change: fn(&Certificates, &mut HttpOptions)| {
        let url = format!("https://{address}/events").parse().unwrap();
        let mut options = HttpOptions::new(url).answer_within(Duration::from_secs(10));
        change(&certificates, &mut options);
        HttpPublisher::new(options).unwrap()
    };
    let known = options(|files, options| {
        options.tls.ca_file = Some(files.file("ca.pem"));
        options.tls.cert_file = Some(files.file("client.pem"));
        options.tls.key_file = Some(files.file("client.key"));
    });
    assert_eq!(publish(&known, &[message("", "1")]).await, [Outcome::DELIVERED]);
    let unknown = options(|files, options| options.tls.ca_file = Some(files.file("ca.pem")));
    let trusting_nobody = options(|_, _| {});
    for publisher in [unknown, trusting_nobody] {
        let outcomes = publish(&publisher, &[message("", "1")]).await;
        let Outcome::Failed(error) = &outcomes[0] else {
            panic!("{outcomes:?}");
        };
        assert_eq!(error.kind, ErrorKind::Transport, "{error}");
        assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
    }
}

/// A proxy that knows CONNECT and asks who is there; counts those that it lets through.
async fn serve_proxy(authorization: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let passed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&passed);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let counter = Arc::clone(&counter);
            tokio::spawn(async move {
                let mut client = BufReader::new(stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if client.read_line(&mut head).await.unwrap() == 0 {
                        return;
                    }
                }
                let target = head.split(' ').nth(1).unwrap().to_owned();
                let known = head.to_lowercase().contains(&authorization.to_lowercase());
                if !head.starts_with("CONNECT ") || !known {
                    let refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
                    client.write_all(refusal).await.unwrap();
                    return;
                }
                counter.fetch_add(1, Ordering::Relaxed);
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let mut server = TcpStream::connect(target).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, passed)
}

#[tokio::test]
async fn a_proxy_lets_us_through_to_the_receiver_if_it_knows_us() {
    let receiver = Receiver::start([]).await;
    // `ann:hush`, as basic authentication has it.
    let (proxy, passed) = serve_proxy("Basic YW5uOmh1c2g=").await;
    let through = |user: &str| {
        let mut options = receiver.options();
        options.proxy = Some(format!("http://{user}{proxy}").parse().unwrap());
        HttpPublisher::new(options).unwrap()
    };
    assert_eq!(
        publish(&through("ann:hush@"), &[message("", "1")]).await,
        [Outcome::DELIVERED]
    );
    assert_eq!((passed.load(Ordering::Relaxed), receiver.posts().len()), (1, 1));
    let outcomes = publish(&through(""), &[message("", "1")]).await;
    let Outcome::Failed(error) = &outcomes[0] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(error.kind, ErrorKind::Transport, "{error}");
    assert!(error.to_string().contains("proxy"), "{error}");
    assert_eq!(receiver.posts().len(), 1);
}
