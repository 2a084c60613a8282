//! Who this driver is, and what it can do.

use std::sync::Arc;

use tonic::Status;

use crate::attach::Attach;
use crate::controller::Controller;
use crate::grpc::Service;
use crate::proto::v1::plugin_capability::{self, service, volume_expansion};
use crate::proto::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse,
};

/// The name under which it is known.
pub const NAME: &str = "csi.hindsight";

/// What is told.
pub struct Identity {
    controller: Option<Arc<Controller>>,
    attach: Attach,
}

/// The calls of Identity.
pub fn calls(controller: Option<Arc<Controller>>, attach: Attach) -> Service<Identity> {
    let identity = Arc::new(Identity { controller, attach });
    Service::new("Identity", &identity)
        .call("GetPluginInfo", Identity::info)
        .call("GetPluginCapabilities", Identity::capabilities)
        .call("Probe", Identity::probe)
}

impl Identity {
    fn info(&self, _: GetPluginInfoRequest) -> Result<GetPluginInfoResponse, Status> {
        Ok(GetPluginInfoResponse {
            name: NAME.to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..GetPluginInfoResponse::default()
        })
    }

    fn capabilities(
        &self,
        _: GetPluginCapabilitiesRequest,
    ) -> Result<GetPluginCapabilitiesResponse, Status> {
        let mut all = Vec::new();
        if self.controller.is_some() {
            let r#type = service::Type::ControllerService as i32;
            all.push(plugin_capability::Type::Service(plugin_capability::Service { r#type }));
        }
        let r#type = match self.attach.grows_attached() {
            true => volume_expansion::Type::Online,
            false => volume_expansion::Type::Offline,
        } as i32;
        let expansion = plugin_capability::VolumeExpansion { r#type };
        all.push(plugin_capability::Type::VolumeExpansion(expansion));
        let capabilities = all.into_iter().map(|one| PluginCapability { r#type: Some(one) });
        Ok(GetPluginCapabilitiesResponse { capabilities: capabilities.collect() })
    }

    /// Whether the server answers.
    fn probe(&self, _: ProbeRequest) -> Result<ProbeResponse, Status> {
        if let Some(controller) = &self.controller {
            controller.probe()?;
        }
        Ok(ProbeResponse { ready: Some(true) })
    }
}
