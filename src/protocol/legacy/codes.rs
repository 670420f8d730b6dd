//! Every `rc` that can be sent: its spelling, its status and what it says when there is nothing better to say.
//!
//! A spelling is a promise to clients of many years, odd ones included: some end in a dot, some hold a space.
//! Where the public service is known to send something else by accident, the documented code is sent:
//!
//! | documented | public service | here |
//! | --- | --- | --- |
//! | `StyleMismatch`, `StyleGetMistmatch`, `StylePromptMissingVars` | `BadRequest` | as documented, 400 |
//! | `SharedKeyInvalid`, and `SharedKeyEmpty`, `SharedKeyExpired` for a style's key | `BadRequest` | as documented |
//! | `SpecialFieldNeedsSpecialUser`, `ExampleURLAlreadyInUse` | `BadRequest` | as documented, 400 |
//! | `SpecialModelNeedsSpecialUser`, `SpecialForbidden`, `TooManyStyleExamples` | `Forbidden` | as documented, 403 |
//! | `MaintenanceMode` | 400 | 503, as the specification says |
//! | codes of the retired synchronous route, and base codes | never sent | no row |
//!
//! The statuses stay those of the public service, so a client that looks at the status alone sees no difference
//! but for maintenance.

macro_rules! codes {
    ($($name:ident = $status:literal, $rc:literal, $message:literal;)*) => {
        /// A stable code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($name,)* }

        impl Code {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub const fn row(self) -> CodeRow {
                match self {
                    $(Self::$name => CodeRow { status: $status, rc: $rc, message: $message },)*
                }
            }
        }
    };
}

/// What the outside sees of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeRow {
    pub status: u16,
    pub rc: &'static str,
    pub message: &'static str,
}

#[rustfmt::skip]
codes! {
    // Anything.
    BadRequest                  = 400, "BadRequest", "the request cannot be done as it stands";
    Forbidden                   = 403, "Forbidden", "Access Denied";
    NulByteInPayload            = 400, "NulByteInPayload", "a text holds a NUL character, wanted text without";
    InvalidPromptEncoding       = 400, "InvalidPromptEncoding", "a text holds half a character, wanted whole ones";
    MaintenanceMode             = 503, "MaintenanceMode", "the service is in maintenance mode and takes no new requests; try again later";
    TooManyPrompts              = 429, "TooManyPrompts", "too many of your requests are waiting; let some of them finish first";
    TimeoutIP                   = 403, "TimeoutIP", "your address is blocked for a while";
    BannedClientAgent           = 403, "BannedClientAgent", "this client may not use the service; ask its author for a newer version";
    Locked                      = 423, "Locked", "the worker cannot be deleted while a finished job refers to it; put it in maintenance mode and try again later";

    // Who asks.
    InvalidApiKey               = 401, "InvalidAPIKey", "Invalid API Key";
    WrongCredentials            = 403, "WrongCredentials", "wrong credentials: this belongs to somebody else";
    NotAdmin                    = 403, "NotAdmin", "Access Denied: only admins may do this";
    NotModerator                = 403, "NotModerator", "Access Denied: only moderators may do this";
    NotOwner                    = 403, "NotOwner", "Access Denied: only the owner or a moderator may do this";
    NotUserOrMod                = 403, "NotUserOrMod", "Access Denied: only the user or a moderator may do this";
    NotRequestOwner             = 403, "NotRequestOwner", "Access Denied: only the key that sent this request may read it";
    NotAllowedAwards            = 403, "NotAllowedAwards", "Access Denied: this account may not award kudos";
    AnonForbidden               = 403, "AnonForbidden", "Access Denied: anonymous may not do this";
    AnonForbiddenWorker         = 403, "AnonForbiddenWorker", "Access Denied: anonymous may not run or change workers";
    AnonForbiddenUserMod        = 403, "AnonForbiddenUserMod", "Access Denied: anonymous may not change users";
    AnonForbiddenUser           = 403, "AnonForbiddenUser", "Access Denied: anonymous may not delete users";
    UntrustedTeamCreation       = 403, "UntrustedTeamCreation", "Access Denied: only trusted users may create teams";
    UntrustedUnsafeIP           = 403, "UntrustedUnsafeIP", "requests from this address are not taken at the moment";
    DeletedUser                 = 403, "DeletedUser", "this account is scheduled for deletion";
    OnlyServiceAccountProxy     = 400, "OnlyServiceAccountProxy", "only service accounts may send proxied_account";
    NonServiceForbidden         = 403, "NonServiceForbidden", "Access Denied: only service accounts have a proxy passkey";
    RequiresTrust               = 400, "RequiresTrust", "disable_batching with n above 1 is for trusted users and patrons";
    CannotDeleteMod             = 403, "CannotDeleteMod", "a moderator's account cannot be deleted";
    CannotWipeActiveUser        = 403, "CannotWipeActiveUser", "an account can be wiped 30 days after it was deleted, if it was not used since";
    UserNotDeleted              = 400, "UserNotDeleted", "the account is not scheduled for deletion";

    // What is not there.
    WorkerNotFound              = 404, "WorkerNotFound", "no worker has this id";
    RequestNotFound             = 404, "RequestNotFound", "no request has this id; it may have expired";
    InvalidJobId                = 404, "InvalidJobID", "no job has this id";
    UserNotFound                = 404, "UserNotFound", "no user was found";
    TeamNotFound                = 404, "TeamNotFound", "no team has this id";
    FilterNotFound              = 404, "FilterNotFound", "no filter has this id";
    StyleNotFound               = 404, "StyleNotFound", "no style has this id or name";
    ImageStyleNotFound          = 404, "Image styleNotFound", "no image style has this id";
    TextStyleNotFound           = 404, "Text styleNotFound", "no text style has this id";
    StyleExampleNotFound        = 404, "Style exampleNotFound", "the style has no example with this id";
    CollectionNotFound          = 404, "CollectionNotFound", "no collection has this id or name";
    WorkerMessageNotFound       = 404, "WorkermessageNotFound", "no message has this id";

    // Prompts and text.
    MissingPrompt               = 400, "MissingPrompt", "the prompt is empty, wanted some text";
    CorruptPrompt               = 400, "CorruptPrompt", "the prompt was refused by the filters of this service";
    InvalidPromptSize           = 400, "InvalidPromptSize", "the prompt has more than 7500 words, or more than 64 KiB";
    TokenOverflow               = 400, "TokenOverflow", "max_length is above max_context_length";
    MissingFullSamplerOrder     = 400, "MissingFullSamplerOrder", "sampler_order needs at least 7 different entries";
    TooManyStopSequences        = 400, "TooManyStopSequences", "stop_sequence may hold 128 different texts";
    ExcessiveStopSequence       = 400, "ExcessiveStopSequence", "the texts of stop_sequence may have 2000 characters together";

    // Images.
    ImageValidationFailed       = 400, "ImageValidationFailed", "the source image cannot be read";
    SourceImageResolutionExceeded = 400, "SourceImageResolutionExceeded", "the source image has too many pixels";
    SourceImageSizeExceeded     = 400, "SourceImageSizeExceeded", "the source image is larger than 5 MB";
    SourceImageUrlInvalid       = 400, "SourceImageUrlInvalid", "there is no image at this URL";
    SourceImageUnreadable       = 400, "SourceImageUnreadable", "the source image cannot be opened";
    InpaintingMissingMask       = 400, "InpaintingMissingMask", "inpainting needs source_mask, or a source image with an alpha channel";
    SourceMaskUnnecessary       = 400, "SourceMaskUnnecessary", "source_mask needs source_image";
    SourceImageRequiredForModel = 400, "SourceImageRequiredForModel", "this model needs source_image";
    UnexpectedModelName         = 400, "UnexpectedModelName", "models names a post-processor or a control type, wanted models";
    UnsupportedControlNet       = 400, "ControlNetUnsupported", "this control_type does not work with this model";
    ControlNetSourceMissing     = 400, "ControlNetSourceMissing", "control_type needs source_image";
    ControlNetInpaintingMismatch = 400, "ControlNetInpaintingMismatch", "control_type does not work with inpainting";
    ControlNetMismatch          = 400, "ControlNetMismatch", "control_type does not work with models of this kind";
    QrCodeMismatch              = 400, "ControlNetMismatch.", "the workflow qr_code works with SD1.5 and SDXL models";
    InvalidControlType          = 400, "InvalidControlType", "the form annotation needs payload.control_type";
    HiResMismatch               = 400, "HiResMismatch", "hires_fix does not work with models of this kind";
    FlowShiftInapplicable       = 400, "FlowShiftInapplicable", "flow_shift does not work with models of this kind";
    InvalidTransparencyModel    = 400, "InvalidTransparencyModel", "transparent works with SD1.5 and SDXL models";
    InvalidTransparencyImg2Img  = 400, "InvalidTransparencyImg2Img", "transparent does not work with extra_source_images";
    InvalidTransparencyCN       = 400, "InvalidTransparencyCN", "transparent does not work with control_type";
    InvalidRemix                = 400, "InvalidRemix", "remix works with Stable Cascade models";
    InvalidExtraSourceImages    = 400, "InvalidExtraSourceImages.", "extra_source_images is for source_processing remix";
    TooManyExtraSourceImages    = 400, "TooManyExtraSourceImages.", "extra_source_images may hold 5 images";
    MoreThanMinExtraSourceImage = 400, "MoreThanMinExtraSourceImage.", "more than one of extra_source_images is for trusted users and patrons";
    InvalidExtraTexts           = 400, "InvalidExtraTexts.", "extra_texts is for the workflow qr_code";
    MissingExtraTexts           = 400, "MissingExtraTexts.", "the workflow qr_code needs an entry of extra_texts with the reference qr_code";
    TooManyLoras                = 400, "TooManyLoras", "loras may hold 5 entries";
    BadLoraVersion              = 400, "BadLoraVersion", "the name of a LoRA with is_version must be a number";
    TooManyTIs                  = 400, "TooManyTIs", "tis may hold 20 entries";
    TooManyUpscalers            = 400, "TooManyUpscalers", "post_processing may hold one upscaler";
    BadCFGDecimals              = 400, "BadCFGDecimals", "cfg_scale may have 2 decimals";
    BadCFGNumber                = 400, "BadCFGNumber", "cfg_scale must be a number";
    SpecialMissingUsername      = 400, "SpecialMissingUsername", "the name of a special model must end in its user's alias";
    SpecialMissingPayload       = 400, "SpecialMissingPayload", "a special model needs params.special";
    SpecialFieldNeedsSpecialUser = 400, "SpecialFieldNeedsSpecialUser", "params.special is for users with the special role";
    SpecialModelNeedsSpecialUser = 403, "SpecialModelNeedsSpecialUser", "special models are for users with the special role";
    SpecialForbidden            = 403, "SpecialForbidden", "this special model belongs to another user";
    BetaAnonForbidden           = 403, "BetaAnonForbidden", "the beta is not for anonymous";
    BetaComparisonFault         = 400, "BetaComparisonFault", "the beta compares two images: n must be 2";

    // Jobs.
    DuplicateGen                = 400, "DuplicateGen", "the job was already submitted";
    AbortedGen                  = 400, "AbortedGen", "the job was taken away because it took too long. Please check your worker speed";
    ProcGenNotFound             = 400, "ProcGenNotFound", "the rated image does not belong to this request";

    // Ratings.
    InvalidAestheticAttempt     = 400, "InvalidAestheticAttempt", "this rating cannot be taken";
    AestheticsNotCompleted      = 400, "AestheticsNotCompleted", "the request is not finished yet";
    AestheticsNotPublic         = 400, "AestheticsNotPublic", "only requests sent with shared can be rated";
    AestheticsDuplicate         = 400, "AestheticsDuplicate", "an image stands twice among the ratings";
    AestheticsMissing           = 400, "AestheticsMissing", "wanted ratings, best, or both";
    AestheticsSolo              = 400, "AestheticsSolo", "there is only one image, so none can be the best";
    AestheticsConfused          = 400, "AestheticsConfused", "another image is rated higher than the best one";
    AestheticsAlreadyExist      = 400, "AestheticsAlreadyExist", "this request was rated already";
    AestheticsServerRejected    = 400, "AestheticsServerRejected", "the ratings were refused";
    AestheticsServerError       = 400, "AestheticsServerError", "the ratings could not be kept";
    AestheticsServerDown        = 400, "AestheticsServerDown", "ratings cannot be kept now; try again later";
    AestheticsServerTimeout     = 400, "AestheticsServerTimeout", "ratings could not be kept in time; try again later";

    // Workers.
    PolymorphicNameConflict     = 400, "PolymorphicNameConflict", "a worker of another kind has this name";
    InvalidPriorityUsername     = 400, "InvalidPriorityUsername", "priority_usernames must look like name#id";
    WorkerMaintenance           = 403, "WorkerMaintenance", "the worker is in maintenance mode";
    WorkerFlaggedMaintenance    = 403, "WorkerFlaggedMaintenance", "the worker was put in maintenance mode because its owner is flagged";
    WorkerInviteOnly            = 403, "WorkerInviteOnly", "the service takes new workers by invitation only";
    TooManyWorkers              = 403, "TooManyWorkers", "too many workers; ask for trust to run more";
    TooManyWorkersTrusted       = 403, "TooManyWorkersTrusted", "too many workers; ask to be invited to run more";
    TooManySameIps              = 403, "TooManySameIPs", "too many workers at this address";
    UnsafeIp                    = 403, "UnsafeIP", "workers behind a VPN or proxy are not taken from untrusted users";
    TooManyNewIps               = 403, "TooManyNewIPs", "the worker's address cannot be checked now; try again later";
    WorkerNameAlreadyExists     = 400, "WorkerNameAlreadyExists", "a worker with this name exists already";
    TooLongWorkerName           = 400, "TooLongWorkerName", "the worker's name is too long";
    ProfaneWorkerName           = 400, "ProfaneWorkerName", "the worker's name holds a profanity";
    ProfaneWorkerInfo           = 400, "ProfaneWorkerInfo", "the worker's info holds a profanity";
    ProfaneBridgeAgent          = 400, "ProfaneBridgeAgent", "bridge_agent holds a profanity";
    MessagesOnlyOwnWorkers      = 403, "MessagesOnlyOwnWorkers", "only a moderator may write to somebody else's worker";

    // Users and teams.
    ProfaneUserName             = 400, "ProfaneUserName", "the user name holds a profanity";
    ProfaneUserContact          = 400, "ProfaneUserContact", "contact holds a profanity";
    ProfaneAdminComment         = 400, "ProfaneAdminComment", "admin_comment holds a profanity";
    TooLongUserName             = 400, "TooLongUserName", "a user name may have 30 characters";
    ProfaneTeamName             = 400, "ProfaneTeamName", "the team's name holds a profanity";
    ProfaneTeamInfo             = 400, "ProfaneTeamInfo", "the team's info holds a profanity";
    TeamNameAlreadyExists       = 400, "TeamNameAlreadyExists", "a team with this name exists already";

    // Bodies that change nothing.
    NoWorkerModSelected         = 400, "NoWorkerModSelected", "the body changes nothing about the worker";
    NoUserModSelected           = 400, "NoUserModSelected", "the body changes nothing about the user";
    NoHordeModSelected          = 400, "NoHordeModSelected", "the body changes no mode of the service";
    NoTeamModSelected           = 400, "NoTeamModSelected", "the body changes nothing about the team";
    NoFilterModSelected         = 400, "NoFilterModSelected", "the body changes nothing about the filter";
    NoSharedKeyModSelected      = 400, "NoSharedKeyModSelected", "the body changes nothing about the shared key";

    // Kudos.
    KudosUpfront                = 403, "KudosUpfront", "this request needs its kudos upfront";
    KudosTransferFromAnon       = 400, "KudosTransferFromAnon", "anonymous cannot send kudos";
    InvalidTargetUsername       = 400, "InvalidTargetUsername", "the receiver is not known";
    KudosTransferToAnon         = 400, "KudosTransferToAnon", "anonymous cannot receive kudos";
    KudosTransferToSelf         = 400, "KudosTransferToSelf", "nobody can send kudos to themselves";
    TooFastKudosTransfers       = 400, "TooFastKudosTransfers", "the receiver has just sent you kudos; wait a minute";
    FaultWhenKudosSending       = 400, "FaultWhenKudosSending", "this account cannot send kudos at the moment";
    SourceAccountFlagged        = 400, "SourceAccountFlagged", "this account is flagged and cannot send kudos";
    EducationCannotSendKudos    = 400, "EducationCannotSendKudos", "education accounts cannot send kudos";
    FaultWhenKudosReceiving     = 400, "FaultWhenKudosReceiving", "the receiver cannot receive kudos at the moment";
    TargetAccountFlagged        = 400, "TargetAccountFlagged", "the receiver is flagged and cannot receive kudos";
    NegativeKudosTransfer       = 400, "NegativeKudosTransfer", "amount is negative, wanted kudos to send";
    InvalidKudosTransferAmount  = 400, "InvalidKudosTransferAmount", "amount is 0, wanted kudos to send";
    IdempotencyKeyConflict      = 400, "IdempotencyKeyConflict", "this Idempotency-Key was used for another transfer";
    KudosTransferNotEnough      = 400, "KudosTransferNotEnough", "not enough kudos";
    InvalidAwardUsername        = 400, "InvalidAwardUsername", "the receiver is not known";
    KudosAwardToAnon            = 400, "KudosAwardToAnon", "anonymous cannot be awarded kudos";

    // Shared keys.
    SharedKeyEmpty              = 403, "SharedKeyEmpty", "the shared key has no kudos left";
    SharedKeyExpired            = 403, "SharedKeyExpired", "the shared key is expired";
    SharedKeyInvalid            = 400, "SharedKeyInvalid", "the shared key is not known, or belongs to somebody else";
    SharedKeyInsufficientKudos  = 403, "SharedKeyInsufficientKudos", "the request costs more than the shared key has left";
    SharedKeyAssignedStyles     = 403, "SharedKeyAssignedStyles", "the shared key belongs to styles and works through them only";

    // Styles.
    StylesRequiresCustomizer    = 403, "StylesRequiresCustomizer", "styles are created by customizers and trusted users";
    StylesAnonForbidden         = 403, "StylesAnonForbidden", "Access Denied: anonymous may not have styles or collections";
    StyleMismatch               = 400, "StyleMismatch", "the style is not of the kind that was asked for";
    StyleGetMismatch            = 400, "StyleGetMistmatch", "the style is not of the kind this route answers";
    StylePromptMissingVars      = 400, "StylePromptMissingVars", "the prompt of a style must hold {p}, and {np} for images";
    TooManyStyleExamples        = 403, "TooManyStyleExamples", "a style has at most 4 examples";
    ExampleUrlAlreadyInUse      = 400, "ExampleURLAlreadyInUse", "this URL is an example of the style already";
}
