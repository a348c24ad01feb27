// With the fragment, which the browser keeps through the redirect: #s8 is a step of a turn.
location.replace(document.getElementById("on").href + location.hash);
