//! Traces and metrics by OTLP. A collector that cannot be reached delays nothing: what it does not take is dropped.

#[cfg(feature = "otel")]
mod bridge;
#[cfg(feature = "otel")]
mod client;
#[cfg(feature = "otel")]
mod export;
#[cfg(feature = "otel")]
mod sampler;

#[cfg(feature = "otel")]
pub use export::{Export, start};

#[cfg(not(feature = "otel"))]
mod left_out {
    use crate::config::OtelConfig;

    /// Nothing is sent.
    #[derive(Debug)]
    pub struct Export;

    #[expect(
        clippy::unused_self,
        clippy::unused_async,
        reason = "the other one has something to do"
    )]
    impl Export {
        /// Makes this the recorder of all metrics.
        pub fn install<R: metrics::Recorder + Sync + 'static>(&self, recorder: R) -> anyhow::Result<()> {
            metrics::set_global_recorder(recorder).map_err(|error| anyhow::anyhow!("{error}"))
        }

        pub fn install_alone(&self) {}

        pub async fn stop(self) {}
    }

    /// Says that nothing is sent, if something should be.
    #[expect(clippy::unnecessary_wraps, reason = "the other one may fail")]
    pub fn start(config: &OtelConfig) -> anyhow::Result<Export> {
        if config.endpoint.is_some() {
            tracing::warn!("otel.endpoint: this build has no OpenTelemetry; build it with the feature otel");
        }
        Ok(Export)
    }
}

#[cfg(not(feature = "otel"))]
pub use left_out::{Export, start};
