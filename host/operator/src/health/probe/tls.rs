//! TLS inside the tunnel: what shows whether the proxy passes bytes on or reads along.
//!
//! Roots are the usual public ones and the CA certificates of the Proxy. Sessions are never resumed: a resumed
//! one would not show the certificate again.

use std::sync::Arc;

use egress_proxies_core::facts::CaPem;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::connect::Tunnel;
use super::failure::Failure;
use super::url::ProbeUrl;

/// Makes TLS settings; those without a CA of their own are shared.
pub(super) struct TlsConfigs {
    crypto: Arc<CryptoProvider>,
    usual: Result<Arc<ClientConfig>, Failure>,
}

impl TlsConfigs {
    pub(super) fn new() -> Self {
        let crypto = Arc::new(rustls::crypto::ring::default_provider());
        let usual = verifying(&crypto, public_roots());
        Self { crypto, usual }
    }

    /// Settings for one Proxy.
    pub(super) fn get(
        &self,
        ca_pem: Option<&CaPem>,
        skip_verify: bool,
    ) -> Result<Arc<ClientConfig>, Failure> {
        if skip_verify {
            return trusting_anybody(&self.crypto);
        }
        let pem = match ca_pem {
            None | Some(CaPem::Missing(_)) => return self.usual.clone(),
            Some(CaPem::Read(pem)) => pem,
        };
        let mut roots = public_roots();
        let mut found = false;
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let added = certificate.ok().map(|certificate| roots.add(certificate));
            if !matches!(added, Some(Ok(()))) {
                return Err(Failure::ca());
            }
            found = true;
        }
        if found { verifying(&self.crypto, roots) } else { Err(Failure::ca()) }
    }
}

/// Shakes hands with the target through the tunnel.
pub(super) async fn handshake<T: Tunnel>(
    config: Arc<ClientConfig>,
    url: &ProbeUrl,
    ca_pem: Option<&CaPem>,
    tunnel: T,
) -> Result<TlsStream<T>, Failure> {
    let name = ServerName::try_from(url.server_name().to_owned())
        .map_err(|_| Failure::probe_url("its host is no name that a certificate can be for"))?;
    TlsConnector::from(config).connect(name, tunnel).await.map_err(|error| Failure::tls(&error, ca_pem))
}

fn public_roots() -> RootCertStore {
    webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect()
}

fn verifying(crypto: &Arc<CryptoProvider>, roots: RootCertStore) -> Result<Arc<ClientConfig>, Failure> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(crypto))
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::tls_setup(&error))?;
    Ok(finish(builder.with_root_certificates(roots).with_no_client_auth()))
}

fn trusting_anybody(crypto: &Arc<CryptoProvider>) -> Result<Arc<ClientConfig>, Failure> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(crypto))
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::tls_setup(&error))?;
    let verifier = Arc::new(Anybody(Arc::clone(crypto)));
    Ok(finish(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

fn finish(mut config: ClientConfig) -> Arc<ClientConfig> {
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// For `insecureSkipVerify`: takes any certificate, but still wants the peer to hold its key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
