// Shows, of all answers of the install selector, the one that fits what is chosen.
document.addEventListener("DOMContentLoaded", () => {
  for (const form of document.querySelectorAll("form.install")) {
    const groups = [...form.querySelectorAll("fieldset")];
    for (const group of groups) group.querySelector("input").checked = true;
    const show = () => {
      const key = groups.map((group) => group.querySelector("input:checked").value).join(" ");
      for (const answer of document.querySelectorAll(".install-answer")) {
        answer.hidden = answer.dataset.for !== key;
        answer.querySelector("p").hidden = true; // the choice is named above
      }
    };
    form.addEventListener("change", show);
    show();
  }
});
