//! Sets up a session's connection: one codec with RTX, and one host candidate.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use media::Codec;
use rtc::{
    ice::mdns::MulticastDnsMode,
    interceptor::{Registry, Slot},
    media_stream::MediaStreamTrack,
    peer_connection::{
        RTCPeerConnection, RTCPeerConnectionBuilder,
        configuration::{
            interceptor_registry::{configure_nack, configure_rtcp_reports},
            media_engine::{
                MIME_TYPE_AV1, MIME_TYPE_H264, MIME_TYPE_HEVC, MIME_TYPE_RTX, MIME_TYPE_VP8,
                MIME_TYPE_VP9, MediaEngine,
            },
            setting_engine::SettingEngineBuilder,
        },
        transport::{CandidateConfig, CandidateHostConfig, RTCIceCandidate},
    },
    rtp_transceiver::{
        RTCRtpSenderId, RTCRtpTransceiverDirection, RTCRtpTransceiverInit,
        rtp_sender::{
            RTCPFeedback, RTCRtpCodec, RTCRtpCodecParameters, RTCRtpCodingParameters,
            RTCRtpEncodingParameters, RtpCodecKind,
        },
    },
    shared::error::Error,
};

use super::feedback::{FeedbackCounters, FeedbackInterceptor};
use crate::whip::clip::ClipFile;

pub(super) const PAYLOAD_TYPE: u8 = 96;
/// Payload type of the RTX stream (RFC 4588).
const RTX_PAYLOAD_TYPE: u8 = 97;

/// Position after all other interceptors of the chain.
const LAST: usize = 50_000;

/// Creates a connection that sends `clip`'s codec from `local`; returns it with its sender and the offer.
/// `heard` counts the server's feedback.
pub(super) fn offer(
    clip: &ClipFile,
    local: SocketAddr,
    ssrc: u32,
    heard: Arc<FeedbackCounters>,
    now: Instant,
) -> Result<(RTCPeerConnection, RTCRtpSenderId, String), Error> {
    let (mut engine, codec) = engine(clip)?;
    let registry = configure_rtcp_reports(configure_nack(Registry::new(), &mut engine))
        .with(Slot::Custom(LAST), FeedbackInterceptor::new(heard));
    let settings = SettingEngineBuilder::new()
        .with_multicast_dns_mode(MulticastDnsMode::Disabled)
        .with_include_loopback_candidate(true)
        .build();
    let mut connection = RTCPeerConnectionBuilder::new()
        .with_media_engine(engine)
        .with_setting_engine(settings)
        .with_interceptor_registry(registry)
        .build(now)?;
    let encoding = RTCRtpEncodingParameters {
        rtp_coding_parameters: RTCRtpCodingParameters { ssrc: Some(ssrc), ..Default::default() },
        active: true,
        codec,
        ..Default::default()
    };
    let name = |what: &str| format!("sightline-{what}");
    let track = MediaStreamTrack::new(
        name("stream"),
        name("video"),
        name("video"),
        RtpCodecKind::Video,
        vec![encoding.clone()],
    );
    let init = RTCRtpTransceiverInit {
        direction: RTCRtpTransceiverDirection::Sendonly,
        streams: vec![name("stream")],
        send_encodings: vec![encoding],
    };
    connection.add_transceiver_from_track(track, Some(init))?;
    let sender = connection.get_senders().next().ok_or(Error::ErrRTPSenderNotExisted)?;
    connection.add_local_candidate(candidate(local)?)?;
    let offer = connection.create_offer(None)?;
    connection.set_local_description(now, offer)?;
    let offer = connection.local_description().ok_or(Error::ErrPeerConnLocalDescriptionNil)?.sdp;
    Ok((connection, sender, offer))
}

fn candidate(
    local: SocketAddr,
) -> Result<rtc::peer_connection::transport::RTCIceCandidateInit, Error> {
    let base_config = CandidateConfig {
        network: "udp".to_owned(),
        address: local.ip().to_string(),
        port: local.port(),
        component: 1,
        ..Default::default()
    };
    let candidate = CandidateHostConfig { base_config, ..Default::default() };
    RTCIceCandidate::from(&candidate.new_candidate_host()?).to_json()
}

fn engine(clip: &ClipFile) -> Result<(MediaEngine, RTCRtpCodec), Error> {
    let mime_type = match clip.codec {
        Codec::H264 => MIME_TYPE_H264,
        Codec::H265 => MIME_TYPE_HEVC,
        Codec::Vp8 => MIME_TYPE_VP8,
        Codec::Vp9 => MIME_TYPE_VP9,
        Codec::Av1 => MIME_TYPE_AV1,
        Codec::Mpeg4 | Codec::Mjpeg => return Err(Error::ErrUnknownType),
    };
    let feedback = |typ: &str, parameter: &str| RTCPFeedback {
        typ: typ.to_owned(),
        parameter: parameter.to_owned(),
    };
    let codec = RTCRtpCodec {
        mime_type: mime_type.to_owned(),
        clock_rate: 90_000,
        channels: 0,
        sdp_fmtp_line: clip.fmtp.clone(),
        rtcp_feedback: vec![feedback("nack", ""), feedback("nack", "pli"), feedback("ccm", "fir")],
    };
    let rtx = RTCRtpCodec {
        mime_type: MIME_TYPE_RTX.to_owned(),
        sdp_fmtp_line: format!("apt={PAYLOAD_TYPE}"),
        rtcp_feedback: Vec::new(),
        ..codec.clone()
    };
    let mut engine = MediaEngine::default();
    for (rtp_codec, payload_type) in [(codec.clone(), PAYLOAD_TYPE), (rtx, RTX_PAYLOAD_TYPE)] {
        let parameters = RTCRtpCodecParameters { rtp_codec, payload_type };
        engine.register_codec(parameters, RtpCodecKind::Video)?;
    }
    Ok((engine, codec))
}
