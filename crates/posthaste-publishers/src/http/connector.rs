//! Connections: TLS, certificates of our own, and a proxy on the way.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderValue, Uri};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tower_service::Service;

use super::options::TlsOptions;
use super::url::HttpUrl;
use crate::options::InvalidOption;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to receivers, encrypted where their address says so.
pub(super) fn connector(tls: &TlsOptions, proxy: Option<&HttpUrl>) -> Result<HttpsConnector<Route>, InvalidOption> {
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.enforce_http(false);
    let route = match proxy {
        None => Route::Direct(tcp),
        Some(proxy) => Route::Proxy(Box::new(tunnel(proxy, tcp)?)),
    };
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls_config(tls)?);
    Ok(builder.https_or_http().enable_http1().wrap_connector(route))
}

fn tunnel(proxy: &HttpUrl, tcp: HttpConnector) -> Result<Tunnel<HttpConnector>, InvalidOption> {
    let refuse = || InvalidOption::new("proxy", proxy, "must be an address such as http://proxy.internal:3128");
    if proxy.is_tls() {
        return Err(refuse());
    }
    let uri: Uri = proxy.without_user().parse().map_err(|_| refuse())?;
    let tunnel = Tunnel::new(uri, tcp);
    Ok(match proxy.basic_auth() {
        Some(auth) => tunnel.with_auth(HeaderValue::from_str(&auth).map_err(|_| refuse())?),
        None => tunnel,
    })
}

/// Trusts the given authorities; else those that the system trusts; and where the system has no list of its own, as in
/// small containers, those that browsers trust.
fn tls_config(tls: &TlsOptions) -> Result<ClientConfig, InvalidOption> {
    let provider = || Arc::new(rustls::crypto::ring::default_provider());
    let builder = || {
        ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring has the protocol versions that rustls defaults to")
    };
    let trusting = match &tls.ca_file {
        Some(path) => {
            let refuse = |error: &dyn std::fmt::Display| {
                InvalidOption::new(
                    "tls.ca_file",
                    path.display(),
                    format!("{error}; give a file of PEM certificates"),
                )
            };
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path).map_err(|error| refuse(&error))? {
                roots.add(certificate).map_err(|error| refuse(&error))?;
            }
            builder().with_root_certificates(roots)
        }
        None => builder().with_native_roots().unwrap_or_else(|error| {
            tracing::warn!(
                %error,
                "the system's certificates cannot be read; Mozilla's list is trusted instead. Correct SSL_CERT_FILE, \
                 or set the publisher's tls.ca_file"
            );
            builder().with_webpki_roots()
        }),
    };
    let (Some(cert), Some(key)) = (&tls.cert_file, &tls.key_file) else {
        return match (&tls.cert_file, &tls.key_file) {
            (Some(path), None) => Err(InvalidOption::new(
                "tls.cert_file",
                path.display(),
                "needs tls.key_file as well",
            )),
            (None, Some(path)) => Err(InvalidOption::new(
                "tls.key_file",
                path.display(),
                "needs tls.cert_file as well",
            )),
            _ => Ok(trusting.with_no_client_auth()),
        };
    };
    let chain = certificates(cert).map_err(|error| {
        InvalidOption::new(
            "tls.cert_file",
            cert.display(),
            format!("{error}; give a file of PEM certificates"),
        )
    })?;
    let refuse_key = |error: &dyn std::fmt::Display| {
        InvalidOption::new(
            "tls.key_file",
            key.display(),
            format!("{error}; give the PEM key of tls.cert_file"),
        )
    };
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| refuse_key(&error))?;
    trusting
        .with_client_auth_cert(chain, private)
        .map_err(|error| refuse_key(&error))
}

fn certificates(path: &std::path::Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err("has no certificate".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(error.to_string()),
    }
}

/// The way to a receiver.
#[derive(Clone, Debug)]
pub(super) enum Route {
    Direct(HttpConnector),
    /// Through a proxy, by CONNECT, so that it sees addresses and nothing else.
    Proxy(Box<Tunnel<HttpConnector>>),
}

impl Service<Uri> for Route {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match self {
            Self::Direct(tcp) => tcp.poll_ready(context).map_err(io::Error::other),
            Self::Proxy(tunnel) => tunnel.poll_ready(context).map_err(io::Error::other),
        }
    }

    fn call(&mut self, receiver: Uri) -> Self::Future {
        match self {
            Self::Direct(tcp) => {
                let connecting = tcp.call(receiver);
                Box::pin(async move { connecting.await.map_err(io::Error::other) })
            }
            Self::Proxy(tunnel) => {
                let connecting = tunnel.call(receiver);
                Box::pin(async move {
                    let connected = connecting.await;
                    connected.map_err(|error| io::Error::other(format!("the proxy on the way: {error}")))
                })
            }
        }
    }
}
